#include "server/rpc/matrix_calls.h"

#include <string>
#include <vector>

#include "gemmd/v1/matrix.pb.h"
#include "server/rpc/field_checks.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/refusals.h"
#include "server/rpc/unary_call.h"

namespace gemmd {
namespace {

void Describe(const MatrixInfo& info, v1::Matrix& out) {
  out.set_matrix_id(info.id);
  out.set_rows(info.rows);
  out.set_cols(info.cols);
  out.set_complete(info.complete);
  out.set_device_bytes(info.device_bytes);
  for (const int device : info.devices) out.add_devices(device);
  absl::Duration rest;
  out.mutable_expires_in()->set_seconds(
      absl::IDivDuration(info.expires_in, absl::Seconds(1), &rest));
  out.mutable_expires_in()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  out.set_uses(info.uses);
}

// A call of one small request about the caller's matrices. Served while the
// server drains, too: it is soon over.
template <typename Derived, typename Request>
class MatrixCall : public UnaryCall {
 protected:
  using UnaryCall::UnaryCall;

 private:
  void Renew() override { new Derived(&environment(), queue()); }

  void Begin() override {
    MatrixStore* const store = environment().dependencies.store;
    if (store == nullptr) return Fail(NoMatricesError());
    const absl::StatusOr<std::string> client = Admit(Role::kCompute);
    if (!client.ok()) return Fail(client.status());
    const absl::StatusOr<Request> message = FromRaw<Request>(&request());
    if (!message.ok()) return Fail(message.status());
    static_cast<Derived*>(this)->Serve(*store, *client, *message);
  }
};

class ListCall final : public MatrixCall<ListCall, v1::ListMatricesRequest> {
 public:
  ListCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : MatrixCall(environment, queue, Method::kListMatrices) {
    environment->gemm_service.RequestListMatrices(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

  // There may be very many to list, and the store's lock to wait for.
  void Serve(MatrixStore& store, const std::string& client,
             const v1::ListMatricesRequest& message) {
    environment().workers.Post(
        [this, &store, client] { Send(store.List(client)); });
  }

 private:
  void Send(const std::vector<MatrixInfo>& matrices) {
    v1::ListMatricesResponse response;
    for (const MatrixInfo& matrix : matrices) {
      Describe(matrix, *response.add_matrices());
    }
    Answer(ToRaw(response));
  }
};

class DeleteCall final
    : public MatrixCall<DeleteCall, v1::DeleteMatrixRequest> {
 public:
  DeleteCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : MatrixCall(environment, queue, Method::kDeleteMatrix) {
    environment->gemm_service.RequestDeleteMatrix(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

  void Serve(MatrixStore& store, const std::string& client,
             const v1::DeleteMatrixRequest& message) {
    const std::string& id = message.matrix_id();
    absl::Status status = CheckMatrixId("matrix_id", {id, id.size()});
    if (status.ok()) status = store.Delete(client, id);
    if (!status.ok()) return Fail(status);
    Answer(ToRaw(v1::DeleteMatrixResponse()));
  }
};

}  // namespace

void OfferMatrixCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 4;
  for (int i = 0; i < kOffered; ++i) {
    new ListCall(environment, queue);
    new DeleteCall(environment, queue);
  }
}

}  // namespace gemmd
