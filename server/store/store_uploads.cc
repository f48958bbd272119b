// The matrices that the store is being given: uploads, of one stream or
// several.

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/store/device_matrix_store.h"
#include "server/store/store_errors.h"
#include "server/store/upload_stream.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<MatrixUpload>> DeviceMatrixStore::BeginUpload(
    const UploadSpec& announced) {
  const auto ttl = CheckTtl(announced.ttl);
  if (!ttl.ok()) return ttl.status();
  const MonotonicDuration lives =
      ttl->value_or(absl::ToChronoNanoseconds(options_.ttl));
  UploadSpec spec = announced;
  if (spec.id.empty()) {
    if (spec.row_count != spec.rows) {
      return InvalidFieldError(
          "header.matrix_id",
          "there is none, and the stream carries a part of the rows: streams "
          "that carry one matrix name it");
    }
    spec.id = MintId();
  }
  if (absl::Status status = MakeRoomForAName(); !status.ok()) return status;
  std::unique_ptr<ResidentMemory> memory;
  while (true) {
    {
      MutexLock lock(&mu_);
      absl::StatusOr<std::unique_ptr<MatrixUpload>> joined = Join(spec, lives);
      if (!joined.ok() || *joined != nullptr) return joined;
      if (memory != nullptr) return Begin(spec, lives, std::move(memory));
    }
    const size_t bytes = static_cast<size_t>(spec.rows) * spec.cols * 4;
    auto reserved = Reserve(&spec.client, budget_->Emptiest(), bytes);
    if (!reserved.ok()) return reserved.status();
    memory = *std::move(reserved);  // another stream may have begun meanwhile
  }
}

absl::StatusOr<std::unique_ptr<MatrixUpload>> DeviceMatrixStore::Join(
    const UploadSpec& spec, MonotonicDuration ttl) {
  const auto incoming = incoming_.find({spec.client, spec.id});
  if (incoming != incoming_.end()) {
    if (incoming->second->HasRows(spec)) {
      return std::make_unique<HeldUpload>(spec.id, /*complete=*/false);
    }
    absl::Status status = incoming->second->AddStream(spec);
    if (!status.ok()) return status;
    return std::make_unique<UploadStream>(
        *this, incoming->second, RowRange{spec.first_row, spec.row_count});
  }
  const StoredMatrix* const named = book_.Peek(spec.client, spec.id);
  const bool other = named != nullptr &&
                     (spec.digest.empty() ||
                      book_.DigestOf(spec.client, spec.id) != spec.digest ||
                      named->rows() != spec.rows || named->cols() != spec.cols);
  if (other) {
    return absl::AlreadyExistsError(absl::StrCat(
        "there is another matrix \"", spec.id, "\", of ", named->rows(), " x ",
        named->cols(), ": delete it first, or take another matrix_id"));
  }
  if (spec.digest.empty() ||
      !book_.AddName(spec.client, spec.id, spec.digest, spec.rows, spec.cols,
                     ttl, MonotonicClock::now())) {
    return nullptr;
  }
  WakeBy(book_.next_expiry());
  return std::make_unique<HeldUpload>(spec.id, /*complete=*/true);
}

std::unique_ptr<MatrixUpload> DeviceMatrixStore::Begin(
    const UploadSpec& spec, MonotonicDuration ttl,
    std::unique_ptr<ResidentMemory> memory) {
  auto incoming =
      std::make_shared<IncomingMatrix>(spec, ttl, std::move(memory));
  incoming->AddStream(spec).IgnoreError();  // the first is never refused
  incoming_.emplace(Key{spec.client, spec.id}, incoming);
  return std::make_unique<UploadStream>(
      *this, std::move(incoming), RowRange{spec.first_row, spec.row_count});
}

void DeviceMatrixStore::AbandonStream(const IncomingMatrix& matrix) {
  MutexLock lock(&mu_);
  WakeBy(MonotonicClock::now() + abandon_after_);
}

absl::StatusOr<MatrixUpload::Result> DeviceMatrixStore::StreamArrived(
    const std::shared_ptr<IncomingMatrix>& matrix, bool last) {
  const bool right = !last || matrix->DigestMatches();
  if (!right) {
    Drop(matrix);
    return InvalidFieldError("header.digest",
                             "the matrix that came has another digest than "
                             "was announced; it was dropped");
  }
  MutexLock lock(&mu_);
  if (matrix->dropped()) return UploadGoneError(matrix->id());
  WakeBy(MonotonicClock::now() + abandon_after_);
  if (!last) return MatrixUpload::Result{matrix->id(), false, false};
  incoming_.erase({matrix->client(), matrix->id()});
  book_.Put(matrix->client(), matrix->id(), matrix->TakeMatrix(),
            matrix->digest(), matrix->ttl(), MonotonicClock::now());
  WakeBy(book_.next_expiry());
  return MatrixUpload::Result{matrix->id(), true, false};
}

void DeviceMatrixStore::Drop(const std::shared_ptr<IncomingMatrix>& matrix) {
  MutexLock lock(&mu_);
  matrix->Drop();
  const auto found = incoming_.find({matrix->client(), matrix->id()});
  if (found != incoming_.end() && found->second == matrix) {
    incoming_.erase(found);
  }
}

}  // namespace gemmd
