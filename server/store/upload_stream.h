// One stream's part of an upload.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/store/device_matrix_store.h"
#include "server/store/incoming_matrix.h"
#include "server/store/matrix_digest.h"
#include "server/store/matrix_store.h"

namespace gemmd {

// Counts and hashes what comes, and ends once nothing more can come and the
// last copy is done. `store` outlives it.
class UploadStream : public MatrixUpload {
 public:
  // `matrix` has the stream already (IncomingMatrix::AddStream).
  UploadStream(DeviceMatrixStore& store, std::shared_ptr<IncomingMatrix> matrix,
               RowRange rows);
  ~UploadStream() override;

  const std::string& id() const override { return matrix_->id(); }
  bool already_held() const override { return false; }
  uint64_t missing_bytes() const override { return end_ - next_; }
  absl::Status Append(StagingBuffer chunk,
                      DeviceMatrixStore::Copied copied) override;
  void Finish(
      absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done) override;

 private:
  // What the copies under way share with the stream, which may go first.
  struct Ending;

  DeviceMatrixStore& store_;
  const std::shared_ptr<IncomingMatrix> matrix_;
  const RowRange rows_;
  const uint64_t end_;  // bytes in the matrix
  uint64_t next_;
  std::optional<RangeDigest> digest_;  // nullopt: none was announced
  const std::shared_ptr<Ending> ending_;
  bool finished_ = false;
};

// A stream of a matrix that the client holds already, or, if that is not
// complete, whose rows are there already.
class HeldUpload : public MatrixUpload {
 public:
  HeldUpload(std::string id, bool complete)
      : id_(std::move(id)), complete_(complete) {}
  const std::string& id() const override { return id_; }
  bool already_held() const override { return true; }
  uint64_t missing_bytes() const override { return 0; }
  absl::Status Append(StagingBuffer chunk,
                      DeviceMatrixStore::Copied copied) override;
  void Finish(
      absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done) override;

 private:
  const std::string id_;
  const bool complete_;
};

}  // namespace gemmd
