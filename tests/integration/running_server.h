// A whole server in the test's process, on free ports, and what talks to it.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "gemmd/v1/gemm_service.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/server.h"
#include "tests/support/exposition.h"

namespace gemmd::testing {

// Free ports, the CPU, no log but errors.
ServerOptions TestOptions();

// Starts in the constructor; a server that does not start ends the test.
class RunningServer {
 public:
  explicit RunningServer(const ServerOptions& options = TestOptions(),
                         Server::BackendFactory backend = CreateBackend);

  Server& operator*() { return *server_; }
  Server* operator->() { return server_.get(); }

  // A connection of its own each time.
  std::shared_ptr<grpc::Channel> Connect() const;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::GemmService::Stub& gemm() { return *gemm_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }

  // What /metrics says now.
  Exposition Metrics() const;

  // Calls begun and ended, all methods, once both have stopped changing.
  struct Calls {
    double started = 0;
    double completed = 0;
  };
  Calls SettledCalls(const std::string& part_of_series = "") const;

 private:
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GemmService::Stub> gemm_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

// Waits until `condition` holds; false after 20 s.
bool Eventually(const std::function<bool()>& condition);

// Sends bytes as the only message of a unary call.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& request,
                     std::string* response = nullptr);

// op(A) [m, k], op(B) [k, n] and, if beta != 0, C, of uniform [-1, 1] numbers.
v1::SgemmRequest RandomRequest(int64_t m, int64_t n, int64_t k, uint64_t seed,
                               float beta = 0, bool transpose_a = false,
                               bool transpose_b = false);

// One that keeps a device busy for some tenths of a second.
v1::SgemmRequest SlowRequest();

// The largest error of a response, as a part of the bound that the wire
// contract promises ((k + 4) * 2^-24 * (|alpha| |A||B| + |beta C|)); NaN if the
// response does not have the right shape.
double ErrorRatio(const v1::SgemmRequest& request,
                  const v1::SgemmResponse& response);

}  // namespace gemmd::testing
