// A whole server behind gRPC in the test's process, on the CPU and a free port,
// and a generated client for it.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "gemmd/v1/gemm_service.grpc.pb.h"
#include "server/rpc/service.h"
#include "tests/unit/server/rpc/gated_backend.h"

namespace gemmd {

class RpcFixture : public ::testing::Test {
 protected:
  RpcFixture();
  ~RpcFixture() override;

  // Opened with these; port 0 and the limits of the members below. The
  // environment's GEMMD_TEST_COMPLETION_QUEUES, if set, goes before theirs.
  void StartServer(RpcOptions options = {});
  absl::StatusOr<std::unique_ptr<RpcServer>> TryStart(RpcOptions options);

  std::shared_ptr<grpc::Channel> Connect(const std::string& target) const;

  // Polls until `condition` holds; fails the test after some seconds.
  static void WaitFor(const std::function<bool()>& condition);

  // Waits until nothing is held for requests any more.
  void ExpectNothingHeld();

  // A [m, k] * B [k, n] of random numbers.
  static v1::SgemmRequest Product(int m, int n, int k, uint64_t seed = 1);

  // Every element within the bound of PRECISION_FP32.
  static void ExpectProduct(const v1::SgemmRequest& request,
                            const v1::SgemmResponse& response);

  AdmissionOptions admission_options_;
  std::function<void(const std::string&)> port_lost_;
  BatchSchedulerOptions scheduler_options_;

  KernelRegistry registry_ = KernelRegistry::Create();
  Metrics metrics_{true, registry_};
  static constexpr size_t kStoreBytes = size_t{64} << 20;
  std::unique_ptr<GatedBackend> backend_;
  std::unique_ptr<MatrixStore> store_;
  std::unique_ptr<RequestLog> request_log_ = RequestLog::Create();
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GemmService::Stub> stub_;
};

}  // namespace gemmd
