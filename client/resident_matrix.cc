#include "gemmd/resident_matrix.h"

#include <utility>

#include "client/residence.h"
#include "client/transfer.h"

namespace gemmd {

ResidentMatrix::ResidentMatrix(std::shared_ptr<client::Residence> residence)
    : residence_(std::move(residence)) {}

const std::string& ResidentMatrix::id() const { return residence_->id(); }
int64_t ResidentMatrix::rows() const { return residence_->rows(); }
int64_t ResidentMatrix::cols() const { return residence_->cols(); }

absl::Status ResidentMatrix::Delete() {
  const std::shared_ptr<client::Residence> residence = std::move(residence_);
  if (residence == nullptr) return absl::OkStatus();
  residence->SetOwned(false);
  const auto session = residence->session().lock();
  if (session == nullptr) {
    return absl::FailedPreconditionError(
        "the client of this matrix is gone; the server's ttl will take it");
  }
  client::Operation operation(session->options().timeout);
  absl::Status status =
      client::DeleteMatrix(*session, residence->id(), &operation);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

std::string ResidentMatrix::Release() {
  residence_->SetOwned(false);
  std::string id = residence_->id();
  residence_.reset();
  return id;
}

Operand::Operand(const ResidentMatrix& matrix)
    : view_{nullptr, matrix ? matrix.rows() : 0, matrix ? matrix.cols() : 0, 0},
      residence_(matrix.residence_) {}

}  // namespace gemmd
