#include "server/store/incoming_matrix.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

std::string Range(int64_t first, int64_t end) {
  return absl::StrCat("[", first, ", ", end, ")");
}

}  // namespace

IncomingMatrix::IncomingMatrix(const UploadSpec& spec, MonotonicDuration ttl,
                               std::unique_ptr<ResidentMemory> memory)
    : client_(spec.client),
      id_(spec.id),
      digest_(spec.digest),
      ttl_(ttl),
      rows_(spec.rows),
      cols_(spec.cols),
      memory_(memory.get()),
      whole_digest_(digest_.empty()
                        ? nullptr
                        : std::make_unique<MatrixDigest>(bytes(), digest_)),
      matrix_(std::make_shared<StoredMatrix>(rows_, cols_, std::move(memory))) {
}

absl::Status IncomingMatrix::CheckSame(const UploadSpec& spec) const {
  if (spec.rows != rows_ || spec.cols != cols_) {
    return InvalidFieldError(
        "header.rows",
        absl::StrCat("this stream announces ", spec.rows, " x ", spec.cols,
                     "; another stream of this matrix_id announced ", rows_,
                     " x ", cols_));
  }
  if (spec.digest != digest_) {
    return InvalidFieldError(
        "header.digest",
        "another stream of this matrix_id announced "
        "another digest, or one of the two announced none");
  }
  return absl::OkStatus();
}

bool IncomingMatrix::HasRows(const UploadSpec& spec) const {
  if (digest_.empty() || !CheckSame(spec).ok()) return false;
  MutexLock lock(&mu_);
  const auto found = ranges_.find(spec.first_row);
  return found != ranges_.end() && found->second.arrived &&
         found->second.end == spec.first_row + spec.row_count;
}

absl::Status IncomingMatrix::AddStream(const UploadSpec& spec) {
  if (absl::Status status = CheckSame(spec); !status.ok()) return status;
  const int64_t end = spec.first_row + spec.row_count;
  MutexLock lock(&mu_);
  if (spec.row_count > 0) {
    auto next = ranges_.lower_bound(spec.first_row);
    if (next != ranges_.begin() &&
        std::prev(next)->second.end > spec.first_row) {
      --next;
    }
    if (next != ranges_.end() && next->first < end) {
      return InvalidFieldError(
          "header.first_row",
          absl::StrCat("rows ", Range(spec.first_row, end), " overlap rows ",
                       Range(next->first, next->second.end),
                       next->second.arrived
                           ? ", which are there"
                           : ", which another stream carries"));
    }
    ranges_.emplace(spec.first_row, Rows{end, false});
  }
  ++streams_;
  return absl::OkStatus();
}

void IncomingMatrix::AbandonStream(RowRange rows, MonotonicTime now) {
  MutexLock lock(&mu_);
  if (rows.count > 0) ranges_.erase(rows.first);
  --streams_;
  idle_since_ = now;
}

absl::Status IncomingMatrix::AddDigest(RangeDigest digest) {
  return whole_digest_ == nullptr ? absl::OkStatus()
                                  : whole_digest_->Add(std::move(digest));
}

bool IncomingMatrix::FinishStream(RowRange rows, MonotonicTime now) {
  MutexLock lock(&mu_);
  if (rows.count > 0) ranges_.find(rows.first)->second.arrived = true;
  rows_arrived_ += rows.count;
  --streams_;
  idle_since_ = now;
  if (complete_ || rows_arrived_ < rows_) return false;
  complete_ = true;
  return true;
}

bool IncomingMatrix::DigestMatches() const {
  return whole_digest_ == nullptr || whole_digest_->Matches();
}

std::shared_ptr<StoredMatrix> IncomingMatrix::TakeMatrix() {
  MutexLock lock(&mu_);
  return std::move(matrix_);
}

void IncomingMatrix::Drop() {
  MutexLock lock(&mu_);
  dropped_ = true;
}

bool IncomingMatrix::dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

int IncomingMatrix::streams() const {
  MutexLock lock(&mu_);
  return streams_;
}

std::optional<MonotonicTime> IncomingMatrix::idle_since() const {
  MutexLock lock(&mu_);
  if (streams_ > 0) return std::nullopt;
  return idle_since_;
}

}  // namespace gemmd
