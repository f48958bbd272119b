#include "server/schedule/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    if (owner_ != nullptr) owner_->Return(bytes_);
    owner_ = std::exchange(other.owner_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Admission::Ticket::~Ticket() {
  if (owner_ != nullptr) owner_->Return(bytes_);
}

Admission::Admission(const AdmissionOptions& options) : options_(options) {}

absl::StatusOr<Admission::Ticket> Admission::Admit(size_t bytes) {
  if (bytes > options_.max_bytes) {
    return LimitError(
        "--queue-max-bytes", options_.max_bytes,
        absl::StrCat("the request needs ", bytes, " bytes of memory; at most ",
                     options_.max_bytes,
                     " are there for all (--queue-max-bytes)"));
  }
  const MonotonicTime now = MonotonicClock::now();
  MutexLock lock(&mu_);
  if (requests_ >= options_.max_requests) {
    return QuotaError("queue-max-requests",
                      absl::StrCat(requests_,
                                   " requests are being served, the most this "
                                   "server holds at once: twice "
                                   "--queue-max-requests"),
                      absl::FromChrono(drain_rate_.RetryDelay(bytes_)));
  }
  if (bytes > options_.max_bytes - bytes_) {
    return QuotaError(
        "queue-max-bytes",
        absl::StrCat("the request needs ", bytes, " bytes; ", bytes_, " of ",
                     options_.max_bytes,
                     " are taken by requests before it (--queue-max-bytes)"),
        absl::FromChrono(drain_rate_.RetryDelay(bytes_)));
  }
  if (requests_ == 0) drain_rate_.Restart(now);
  ++requests_;
  bytes_ += bytes;
  return Ticket(this, bytes);
}

void Admission::Return(size_t bytes) {
  const MonotonicTime now = MonotonicClock::now();
  MutexLock lock(&mu_);
  --requests_;
  bytes_ -= bytes;
  drain_rate_.Note(static_cast<double>(bytes), now);
}

int Admission::requests() const {
  MutexLock lock(&mu_);
  return requests_;
}

size_t Admission::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace gemmd
