#include "client/residence.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "proto/error_details.h"

namespace gemmd::client {

Residence::Residence(std::weak_ptr<Session> session, std::string id,
                     int64_t rows, int64_t cols, bool owned,
                     std::optional<Source> source)
    : session_(std::move(session)),
      id_(std::move(id)),
      rows_(rows),
      cols_(cols),
      owned_(owned),
      source_(std::move(source)) {}

Residence::~Residence() {
  if (!owned_) return;
  if (const auto session = session_.lock()) session->DropMatrix(id_);
}

std::optional<MatrixView> Residence::source() const {
  std::lock_guard<std::mutex> lock(mu_);
  if (!source_.has_value()) return std::nullopt;
  return source_->view;
}

bool Residence::MayBeRestored(const absl::Status& status) const {
  const bool missing =
      absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  return missing && source().has_value() &&
         MissingResource(status, "gemmd.v1.Matrix") == id_;
}

void Residence::Written() {
  std::lock_guard<std::mutex> lock(mu_);
  source_.reset();
}

void Residence::SetOwned(bool owned) {
  std::lock_guard<std::mutex> lock(mu_);
  owned_ = owned;
}

int Residence::restored() const {
  std::lock_guard<std::mutex> lock(mu_);
  return restored_;
}

absl::Status Residence::Restore(const Session& session, int restored,
                                Operation* operation) {
  const absl::Duration patience =
      std::min(operation->remaining(), absl::Hours(24 * 365));
  if (!restoring_.try_lock_for(absl::ToChronoNanoseconds(patience))) {
    return absl::DeadlineExceededError(
        "a matrix that the server had lost was not uploaded again in time");
  }
  const absl::Cleanup unlock = [this] { restoring_.unlock(); };
  std::optional<Source> source;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (restored_ != restored) return absl::OkStatus();
    source = source_;
  }
  if (!source.has_value()) {
    return absl::FailedPreconditionError("the matrix has no source");
  }
  absl::Status status =
      Upload(session, source->view, source->target, operation);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  ++restored_;
  return absl::OkStatus();
}

}  // namespace gemmd::client
