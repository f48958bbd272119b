#include "server/store/upload_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/store/store_errors.h"

namespace gemmd {
namespace {

absl::Status TooManyBytesError(uint64_t bytes, uint64_t missing) {
  return InvalidFieldError(
      "chunk", absl::StrCat("the chunk has ", bytes, " bytes; ", missing,
                            " of the stream's rows are missing"));
}

}  // namespace

struct UploadStream::Ending {
  Ending(DeviceMatrixStore& store, std::shared_ptr<IncomingMatrix> matrix,
         RowRange rows)
      : store(store), matrix(std::move(matrix)), rows(rows) {}

  // Ends the stream if Finish was called and no copy is under way.
  void EndIfDone() {
    decltype(done) now;
    absl::Status result;
    {
      MutexLock lock(&mu);
      if (copying > 0 || !done) return;
      now = std::exchange(done, nullptr);
      result = status;
    }
    if (!result.ok()) {
      matrix->AbandonStream(rows, MonotonicClock::now());
      store.AbandonStream(*matrix);
      std::move(now)(result);
      return;
    }
    const bool last = matrix->FinishStream(rows, MonotonicClock::now());
    std::move(now)(store.StreamArrived(matrix, last));
  }

  DeviceMatrixStore& store;
  const std::shared_ptr<IncomingMatrix> matrix;
  const RowRange rows;
  Mutex mu;
  int copying ABSL_GUARDED_BY(mu) = 0;
  absl::Status status ABSL_GUARDED_BY(mu);
  absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done ABSL_GUARDED_BY(mu);
};

UploadStream::UploadStream(DeviceMatrixStore& store,
                           std::shared_ptr<IncomingMatrix> matrix,
                           RowRange rows)
    : store_(store),
      matrix_(std::move(matrix)),
      rows_(rows),
      end_(static_cast<uint64_t>(rows.first + rows.count) *
           matrix_->row_bytes()),
      next_(static_cast<uint64_t>(rows.first) * matrix_->row_bytes()),
      ending_(std::make_shared<Ending>(store, matrix_, rows)) {
  if (!matrix_->digest().empty()) {
    digest_.emplace(next_, end_, matrix_->bytes());
  }
}

UploadStream::~UploadStream() {
  if (finished_) return;
  matrix_->AbandonStream(rows_, MonotonicClock::now());
  store_.AbandonStream(*matrix_);
}

absl::Status UploadStream::Append(StagingBuffer chunk,
                                  DeviceMatrixStore::Copied copied) {
  if (chunk.size() > missing_bytes()) {
    return TooManyBytesError(chunk.size(), missing_bytes());
  }
  if (matrix_->dropped()) return UploadGoneError(id());
  if (digest_) digest_->Update({chunk.data(), chunk.size()});
  const uint64_t offset = next_;
  next_ += chunk.size();
  {
    MutexLock lock(&ending_->mu);
    ++ending_->copying;
  }
  store_.CopyIn(matrix_, offset, std::move(chunk),
                [ending = ending_, copied = std::move(copied)](
                    const absl::Status& status) mutable {
                  std::move(copied)(status);
                  {
                    MutexLock lock(&ending->mu);
                    ending->status.Update(status);
                    --ending->copying;
                  }
                  ending->EndIfDone();
                });
  return absl::OkStatus();
}

void UploadStream::Finish(
    absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done) {
  absl::Status status;
  if (missing_bytes() > 0) {
    status = InvalidFieldError(
        "chunk", absl::StrCat("the stream ended with ", missing_bytes(),
                              " bytes of its rows missing"));
  } else if (digest_) {
    status = matrix_->AddDigest(*std::move(digest_));
    if (!status.ok()) store_.Drop(matrix_);
  }
  finished_ = true;
  {
    MutexLock lock(&ending_->mu);
    ending_->status.Update(status);
    ending_->done = std::move(done);
  }
  ending_->EndIfDone();
}

absl::Status HeldUpload::Append(StagingBuffer chunk,
                                DeviceMatrixStore::Copied copied) {
  return TooManyBytesError(chunk.size(), 0);
}

void HeldUpload::Finish(
    absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done) {
  std::move(done)(Result{id_, complete_, /*already_held=*/complete_});
}

}  // namespace gemmd
