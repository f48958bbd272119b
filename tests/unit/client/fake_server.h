// A gemmd server in this process that answers as a test tells it to.

#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <climits>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/gemm_service.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/status.h"
#include "tests/unit/client/fake_matrices.h"

namespace gemmd {

// C = A * B (op applied, alpha and beta counted), in double, for small sizes.
inline void Multiply(const v1::SgemmRequest& request,
                     v1::SgemmResponse* response) {
  const auto at = [](const v1::Operand& x, bool transpose, uint64_t i,
                     uint64_t j) {
    const uint64_t ld =
        x.leading_dimension() == 0 ? x.cols() : x.leading_dimension();
    const size_t index = transpose ? j * ld + i : i * ld + j;
    return reinterpret_cast<const float*>(x.data().data())[index];
  };
  const v1::Operand& a = request.a();
  const v1::Operand& b = request.b();
  const uint64_t m = request.transpose_a() ? a.cols() : a.rows();
  const uint64_t k = request.transpose_a() ? a.rows() : a.cols();
  const uint64_t n = request.transpose_b() ? b.rows() : b.cols();
  std::string* c = response->mutable_c();
  c->resize(m * n * sizeof(float));
  for (uint64_t i = 0; i < m; ++i) {
    for (uint64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (uint64_t l = 0; l < k; ++l) {
        sum += double{at(a, request.transpose_a(), i, l)} *
               at(b, request.transpose_b(), l, j);
      }
      sum *= request.has_alpha() ? request.alpha() : 1.0;
      if (request.beta() != 0) {
        sum += double{request.beta()} * at(request.c(), false, i, j);
      }
      reinterpret_cast<float*>(c->data())[i * n + j] = static_cast<float>(sum);
    }
  }
  response->set_rows(m);
  response->set_cols(n);
  response->mutable_execution()->set_kernel("fake");
  response->mutable_execution()->set_batch_size(1);
}

class FakeServer final : public v1::GemmService::Service {
 public:
  using Handler = std::function<absl::Status(
      grpc::ServerContext&, const v1::SgemmRequest&, v1::SgemmResponse*)>;

  // Listens on `address`, by default a free port of loopback.
  explicit FakeServer(Handler handler, std::string address = "127.0.0.1:0",
                      const std::shared_ptr<grpc::ServerCredentials>&
                          credentials = grpc::InsecureServerCredentials())
      : handler_(std::move(handler)), health_(this) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, credentials, &port);
    builder.RegisterService(this);
    builder.RegisterService(&health_);
    builder.SetMaxReceiveMessageSize(INT_MAX);
    builder.SetMaxSendMessageSize(INT_MAX);
    server_ = builder.BuildAndStart();
    address_ = port > 1 ? absl::StrCat("127.0.0.1:", port) : address;
  }
  ~FakeServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  const std::string& address() const { return address_; }

  int calls() const {
    std::lock_guard<std::mutex> lock(mu_);
    return calls_;
  }
  // Distinct sockets and client ids that calls came from.
  std::set<std::string> peers() const {
    std::lock_guard<std::mutex> lock(mu_);
    return peers_;
  }
  std::set<std::string> client_ids() const {
    std::lock_guard<std::mutex> lock(mu_);
    return client_ids_;
  }
  // The metadata `authorization` that came last with each method, "" for none.
  std::map<std::string, std::string> authorizations() const {
    std::lock_guard<std::mutex> lock(mu_);
    return authorizations_;
  }

  FakeMatrices& matrices() { return matrices_; }

  // What came over the wire, of all calls.
  struct Seen {
    int uploads = 0;  // streams
    int streams = 0;  // of products
    int ended_streams = 0;
    int streamed = 0;  // products on them
    int downloads = 0;
    int info_calls = 0;
    uint64_t uploaded_bytes = 0;
    size_t largest_chunk = 0;
    size_t largest_request = 0;  // of Sgemm
    std::vector<std::string> request_ids;
  };
  Seen seen() const {
    std::lock_guard<std::mutex> lock(mu_);
    return seen_;
  }

  // What becomes of the next uploads, after those that were told before, when
  // all of their rows have come and before they are taken.
  void FailUploads(int times, const absl::Status& error) {
    std::lock_guard<std::mutex> lock(mu_);
    upload_errors_.insert(upload_errors_.end(), times, error);
  }
  // The next answers to uploads are lost: the rows are there, the client hears
  // UNAVAILABLE.
  void LoseUploadAnswers(int times) {
    std::lock_guard<std::mutex> lock(mu_);
    lost_upload_answers_ = times;
  }
  // The next answers to Sgemm are lost: the work is done, the client hears
  // UNAVAILABLE.
  void LoseAnswers(int times) {
    std::lock_guard<std::mutex> lock(mu_);
    lost_answers_ = times;
  }

  // The next streams of products break when their first item has come.
  void BreakStreams(int times) {
    std::lock_guard<std::mutex> lock(mu_);
    breaking_streams_ = times;
  }

  // All matrices are lost at these requests (Sgemm and Download, from 1 on).
  void LoseMatricesAt(std::set<int> requests) {
    std::lock_guard<std::mutex> lock(mu_);
    losses_ = std::move(requests);
  }

  v1::GetServerInfoResponse info;  // before the first call
  bool serving = true;             // likewise

 private:
  class Health final : public grpc::health::v1::Health::Service {
   public:
    explicit Health(FakeServer* server) : server_(server) {}
    grpc::Status Check(grpc::ServerContext* context,
                       const grpc::health::v1::HealthCheckRequest* request,
                       grpc::health::v1::HealthCheckResponse* response) final {
      server_->NoteCaller("Check", *context);
      if (request->service() == "nobody") {
        return grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service");
      }
      response->set_status(
          server_->serving
              ? grpc::health::v1::HealthCheckResponse::SERVING
              : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
      return grpc::Status::OK;
    }

   private:
    FakeServer* const server_;
  };

  grpc::Status Sgemm(grpc::ServerContext* context,
                     const v1::SgemmRequest* request,
                     v1::SgemmResponse* response) final {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ++calls_;
      peers_.insert(context->peer());
    }
    NoteCaller("Sgemm", *context);
    return ToGrpcStatus(Run(*context, *request, response));
  }

  void NoteCaller(const char* method, const grpc::ServerContext& context) {
    const auto value = [&](const char* key) {
      const auto found = context.client_metadata().find(key);
      return found == context.client_metadata().end()
                 ? std::string()
                 : std::string(found->second.data(), found->second.size());
    };
    std::lock_guard<std::mutex> lock(mu_);
    client_ids_.insert(value("gemmd-client"));
    authorizations_[method] = value("authorization");
  }

  void MaybeLoseMatrices() {
    std::lock_guard<std::mutex> lock(mu_);
    if (losses_.count(++requests_) > 0) matrices_.Clear();
  }

  absl::Status Run(grpc::ServerContext& context, v1::SgemmRequest request,
                   v1::SgemmResponse* response);

  grpc::Status SgemmStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SgemmStreamResponse, v1::SgemmStreamRequest>*
          stream) final;

  grpc::Status UploadMatrix(grpc::ServerContext* context,
                            grpc::ServerReader<v1::UploadMatrixRequest>* reader,
                            v1::UploadMatrixResponse* response) final;

  grpc::Status DownloadMatrix(
      grpc::ServerContext* context, const v1::DownloadMatrixRequest* request,
      grpc::ServerWriter<v1::DownloadMatrixResponse>* writer) final;

  grpc::Status ListMatrices(grpc::ServerContext* context,
                            const v1::ListMatricesRequest*,
                            v1::ListMatricesResponse* response) final {
    NoteCaller("ListMatrices", *context);
    for (const std::string& id : matrices_.ids()) {
      const auto entry = matrices_.Find(id);
      v1::Matrix* matrix = response->add_matrices();
      matrix->set_matrix_id(id);
      matrix->set_complete(entry.ok());
      if (!entry.ok()) continue;
      matrix->set_rows(entry->rows);
      matrix->set_cols(entry->cols);
    }
    return grpc::Status::OK;
  }

  grpc::Status DeleteMatrix(grpc::ServerContext* context,
                            const v1::DeleteMatrixRequest* request,
                            v1::DeleteMatrixResponse*) final {
    NoteCaller("DeleteMatrix", *context);
    return ToGrpcStatus(matrices_.Delete(request->matrix_id()));
  }

  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) final {
    NoteCaller("GetServerInfo", *context);
    std::lock_guard<std::mutex> lock(mu_);
    ++seen_.info_calls;
    *response = info;
    return grpc::Status::OK;
  }

  const Handler handler_;
  Health health_;
  std::string address_;
  FakeMatrices matrices_;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mu_;
  int calls_ = 0;                                      // guarded by mu_
  std::set<std::string> peers_;                        // guarded by mu_
  std::set<std::string> client_ids_;                   // guarded by mu_
  std::map<std::string, std::string> authorizations_;  // guarded by mu_
  Seen seen_;                                          // guarded by mu_
  std::deque<absl::Status> upload_errors_;             // guarded by mu_
  int lost_upload_answers_ = 0;                        // guarded by mu_
  int breaking_streams_ = 0;                           // guarded by mu_
  int lost_answers_ = 0;                               // guarded by mu_
  std::set<int> losses_;                               // guarded by mu_
  int requests_ = 0;                                   // guarded by mu_
  std::set<std::string> applied_;  // request ids; guarded by mu_
};

}  // namespace gemmd
