// What a request named of what the server keeps, and may have lost.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/operation.h"
#include "client/residence.h"
#include "client/session.h"
#include "client/shared_blocks.h"
#include "gemmd/matrix.h"

namespace gemmd::client {

// The resident operands and the shared memory of one try: where the server
// answers that it does not know one (it was started anew, evicted a matrix, or
// is another replica), it can be told again.
//
// Thread-compatible.
class SentResources {
 public:
  void Clear();
  void Add(std::shared_ptr<Residence> matrix);
  // Where `x` is in shared memory; else nothing.
  void AddMemory(const MatrixView& x, const SharedBlocks& shared);

  // Whether `missing` names one of these that can be brought again.
  bool CanRestore(const absl::Status& missing) const;

  // Brings it again; OK also where none of these is missing.
  absl::Status Restore(const absl::Status& missing, const Session& session,
                       Operation* operation) const;

 private:
  struct SentMatrix {
    std::shared_ptr<Residence> residence;
    int restored;  // how often, until then
  };
  struct SentRegion {
    std::shared_ptr<SharedBlock> block;
    std::string region_id;  // that was told
  };

  std::vector<SentMatrix> matrices_;
  std::vector<SentRegion> regions_;
};

// Of the matrix that the server does not know; empty: the error is another.
std::string MissingMatrix(const absl::Status& status);

}  // namespace gemmd::client
