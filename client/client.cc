#include "gemmd/client.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/async_product.h"
#include "client/digest.h"
#include "client/operation.h"
#include "client/options_check.h"
#include "client/product.h"
#include "client/residence.h"
#include "client/server_info_wire.h"
#include "client/session.h"
#include "client/shared_blocks.h"
#include "client/transfer.h"
#include "client/wire_bytes.h"
#include "gemmd/v1/matrix.pb.h"
#include "gemmd/v1/server_info.pb.h"
#include "grpc/health/v1/health.pb.h"

namespace gemmd {

using client::Operation;
using client::Product;
using client::Session;

SgemmHandle::SgemmHandle(std::shared_ptr<Operation> operation)
    : operation_(std::move(operation)) {}

void SgemmHandle::Cancel() { operation_->Cancel(); }

Client::Client(std::shared_ptr<Session> session)
    : session_(std::move(session)) {}

Client::~Client() { session_->End(); }

absl::StatusOr<std::unique_ptr<Client>> Client::Create(
    const ClientOptions& options) {
  absl::Status status = client::CheckOptions(options);
  if (!status.ok()) return status;
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Session>(options)));
}

const std::string& Client::id() const { return session_->identity().id(); }

int Client::connections() const { return session_->connections().size(); }

absl::StatusOr<SgemmAnswer> Client::Sgemm(const SgemmCall& call) {
  Operation operation(call.timeout.value_or(session_->options().timeout));
  Product product(session_.get(), call, &operation);
  absl::Status status = product.Prepare();
  if (!status.ok()) return status;
  return product.Run();
}

SgemmHandle Client::SgemmAsync(
    const SgemmCall& call,
    absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)> done) {
  auto operation = std::make_shared<Operation>(
      call.timeout.value_or(session_->options().timeout));
  std::make_shared<client::AsyncProduct>(session_.get(), call, operation,
                                         std::move(done))
      ->Begin();
  return SgemmHandle(std::move(operation));
}

absl::StatusOr<ResidentMatrix> Client::Upload(const MatrixView& source,
                                              const UploadOptions& options) {
  Operation operation(options.timeout.value_or(session_->options().timeout));
  absl::Status status = client::CheckMatrix(source, "the matrix");
  if (status.ok() && !options.id.empty()) {
    status = client::CheckMatrixId(options.id);
  }
  if (!status.ok()) return status;
  const client::UploadTarget target = {
      .id = options.id.empty() ? client::NewId() : options.id,
      .minted = options.id.empty(),
      .ttl = options.ttl,
      .digest = options.digest ? client::Digest(source) : ""};
  status = client::Upload(*session_, source, target, &operation);
  if (!status.ok()) return status;
  using Source = client::Residence::Source;
  return ResidentMatrix(std::make_shared<client::Residence>(
      session_, target.id, source.rows, source.cols, /*owned=*/true,
      options.source_lives ? std::optional(Source{source, target})
                           : std::nullopt));
}

namespace {

absl::Status NoMatrix() {
  return absl::InvalidArgumentError(
      "the handle refers to no matrix; upload one, or find it by its id");
}

}  // namespace

absl::StatusOr<Matrix> Client::Download(const ResidentMatrix& matrix) {
  if (!matrix) return NoMatrix();
  Matrix to(matrix.rows(), matrix.cols());
  absl::Status status = Download(matrix, 0, to.mutable_view());
  if (!status.ok()) return status;
  return to;
}

absl::Status Client::Download(const ResidentMatrix& matrix, int64_t first_row,
                              const MutableMatrixView& to) {
  if (!matrix) return NoMatrix();
  Operation operation(session_->options().timeout);
  absl::Status status = client::CheckMatrix(to, "the output");
  if (!status.ok()) return status;
  if (to.cols != matrix.cols() || first_row < 0 ||
      first_row > matrix.rows() - to.rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        to.rows, " rows of ", to.cols, " columns from row ", first_row,
        " on are not in a matrix of ", matrix.rows(), " x ", matrix.cols()));
  }
  if (client::IsEmpty(to)) return absl::OkStatus();
  const int restored = matrix.residence_->restored();
  status = client::Download(*session_, matrix.id(), first_row, to, &operation);
  if (!matrix.residence_->MayBeRestored(status)) return status;
  status = matrix.residence_->Restore(*session_, restored, &operation);
  if (!status.ok()) return status;
  return client::Download(*session_, matrix.id(), first_row, to, &operation);
}

absl::StatusOr<ResidentMatrix> Client::FindMatrix(const std::string& id) {
  const absl::StatusOr<std::vector<ResidentMatrix::Info>> all = ListMatrices();
  if (!all.ok()) return all.status();
  for (const ResidentMatrix::Info& info : *all) {
    if (info.id != id || !info.complete) continue;
    return ResidentMatrix(std::make_shared<client::Residence>(
        session_, id, info.rows, info.cols, /*owned=*/false, std::nullopt));
  }
  return absl::NotFoundError(absl::StrCat(
      "this client has no complete matrix \"", id, "\" on the server"));
}

absl::StatusOr<std::vector<ResidentMatrix::Info>> Client::ListMatrices() {
  Operation operation(session_->options().timeout);
  v1::ListMatricesResponse response;
  absl::Status status =
      session_->CallAndWait("/gemmd.v1.GemmService/ListMatrices",
                            v1::ListMatricesRequest(), &response, &operation);
  if (!status.ok()) return status;
  std::vector<ResidentMatrix::Info> all;
  for (const v1::Matrix& matrix : response.matrices()) {
    all.push_back({
        .id = matrix.matrix_id(),
        .rows = static_cast<int64_t>(matrix.rows()),
        .cols = static_cast<int64_t>(matrix.cols()),
        .complete = matrix.complete(),
        .device_bytes = matrix.device_bytes(),
        .devices = {matrix.devices().begin(), matrix.devices().end()},
        .expires_in = client::DurationFromProto(matrix.expires_in()),
        .uses = matrix.uses(),
    });
  }
  return all;
}

absl::StatusOr<SharedMemory> Client::ShareMemory(size_t bytes) {
  constexpr absl::string_view kUnix = "unix:";
  const std::string& address = session_->options().address;
  if (!absl::StartsWith(address, kUnix)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "memory is shared over a unix socket (unix:/path), not ", address));
  }
  if (bytes == 0) {
    return absl::InvalidArgumentError("0 bytes of memory cannot be shared");
  }
  auto block = client::SharedBlock::Create(address.substr(kUnix.size()), bytes);
  if (!block.ok()) return block.status();
  session_->shared().Add(*block);
  return SharedMemory(*std::move(block));
}

absl::Status Client::DeleteMatrix(const std::string& id) {
  Operation operation(session_->options().timeout);
  absl::Status status = client::CheckMatrixId(id);
  if (!status.ok()) return status;
  return client::DeleteMatrix(*session_, id, &operation);
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  Operation operation(session_->options().timeout);
  v1::GetServerInfoResponse response;
  absl::Status status =
      session_->CallAndWait("/gemmd.v1.GemmService/GetServerInfo",
                            v1::GetServerInfoRequest(), &response, &operation);
  if (!status.ok()) return status;
  return client::FromProto(response);
}

absl::StatusOr<ServerHealth> Client::Health(const std::string& service) {
  Operation operation(session_->options().timeout);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  absl::Status status = session_->CallAndWait("/grpc.health.v1.Health/Check",
                                              request, &response, &operation);
  if (!status.ok()) return status;
  switch (response.status()) {
    case grpc::health::v1::HealthCheckResponse::SERVING:
      return ServerHealth::kServing;
    case grpc::health::v1::HealthCheckResponse::NOT_SERVING:
      return ServerHealth::kNotServing;
    default:
      return ServerHealth::kUnknown;
  }
}

}  // namespace gemmd
