// The resident matrices of a FakeServer.

#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmd/v1/matrix.pb.h"
#include "gemmd/v1/sgemm.pb.h"

namespace gemmd {

// Does what the contract says, in a map. Thread-safe.
class FakeMatrices {
 public:
  struct Entry {
    uint64_t rows = 0;
    uint64_t cols = 0;
    std::string numbers;  // packed
    std::string digest;   // as announced
    std::set<uint64_t> missing_rows;
  };

  // A new stream. True: the numbers are held already.
  absl::StatusOr<bool> BeginUpload(const v1::UploadHeader& header);

  // Rows of a stream that has sent them all. True: the matrix is complete.
  absl::StatusOr<bool> FinishUpload(const v1::UploadHeader& header,
                                    const std::string& numbers);

  absl::StatusOr<Entry> Find(const std::string& id) const;
  void Put(const std::string& id, uint64_t rows, uint64_t cols,
           std::string numbers);
  absl::Status Delete(const std::string& id);
  void Clear();  // as a server that was started anew
  std::set<std::string> ids() const;

  // Puts the numbers into operands that have an id.
  absl::Status Resolve(v1::Operand* operand) const;

 private:
  mutable std::mutex mu_;
  std::map<std::string, Entry> entries_;  // guarded by mu_
};

// As the server computes it.
std::string BlockDigest(const std::string& numbers);

}  // namespace gemmd
