// A matrix of which some rows are still to come.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"
#include "server/store/matrix_digest.h"
#include "server/store/matrix_store.h"
#include "server/store/stored_matrix.h"

namespace gemmd {

// The rows of one stream.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The memory that streams fill, which rows they have, and the digest of it all.
//
// Thread-safe; calls nobody.
class IncomingMatrix {
 public:
  // As the first stream announces it; `memory` holds the whole.
  IncomingMatrix(const UploadSpec& spec, MonotonicDuration ttl,
                 std::unique_ptr<ResidentMemory> memory);

  const std::string& client() const { return client_; }
  const std::string& id() const { return id_; }
  const std::string& digest() const { return digest_; }
  MonotonicDuration ttl() const { return ttl_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t row_bytes() const { return static_cast<size_t>(cols_) * 4; }
  size_t bytes() const { return static_cast<size_t>(rows_) * row_bytes(); }
  // What the streams fill. Lives until TakeMatrix, and then as long as the
  // matrix.
  ResidentMemory& memory() const { return *memory_; }

  // Whether these very rows came before, of the matrix announced now: a stream
  // that is sent again since its answer was lost. Never without a digest.
  bool HasRows(const UploadSpec& spec) const ABSL_LOCKS_EXCLUDED(mu_);

  // One more stream. INVALID_ARGUMENT when it announces another matrix, or rows
  // that another one has.
  absl::Status AddStream(const UploadSpec& spec) ABSL_LOCKS_EXCLUDED(mu_);

  // A stream ends without its rows: they are wanted again.
  void AbandonStream(RowRange rows, MonotonicTime now) ABSL_LOCKS_EXCLUDED(mu_);

  // A stream's part of the digest, before it ends. Errors: MatrixDigest::Add;
  // then the matrix cannot be completed any more.
  absl::Status AddDigest(RangeDigest digest);

  // A stream ends with its rows on the device; whether they were the last.
  bool FinishStream(RowRange rows, MonotonicTime now) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the whole has the digest announced, or none was.
  bool DigestMatches() const;

  // The whole, once; null after that.
  std::shared_ptr<StoredMatrix> TakeMatrix() ABSL_LOCKS_EXCLUDED(mu_);

  // Streams are to stop: the matrix has been given up.
  void Drop() ABSL_LOCKS_EXCLUDED(mu_);
  bool dropped() const ABSL_LOCKS_EXCLUDED(mu_);

  // Streams under way; and, when there are none, since when.
  int streams() const ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<MonotonicTime> idle_since() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Rows {
    int64_t end;
    bool arrived;
  };

  absl::Status CheckSame(const UploadSpec& spec) const;

  const std::string client_;
  const std::string id_;
  const std::string digest_;
  const MonotonicDuration ttl_;
  const int64_t rows_;
  const int64_t cols_;
  ResidentMemory* const memory_;                      // of matrix_
  const std::unique_ptr<MatrixDigest> whole_digest_;  // null: not told

  mutable Mutex mu_;
  std::shared_ptr<StoredMatrix> matrix_ ABSL_GUARDED_BY(mu_);
  // Of streams that carry some, by the first; they do not overlap.
  std::map<int64_t, Rows> ranges_ ABSL_GUARDED_BY(mu_);
  int64_t rows_arrived_ ABSL_GUARDED_BY(mu_) = 0;
  int streams_ ABSL_GUARDED_BY(mu_) = 0;
  bool complete_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
  MonotonicTime idle_since_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace gemmd
