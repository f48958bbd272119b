// A server with a folder for a unix socket, and what is asked of it.

#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/monotonic_time.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {

inline MonotonicTime In(std::chrono::milliseconds time) {
  return MonotonicClock::now() + time;
}

class ServiceTest : public RpcFixture {
 protected:
  ServiceTest() {
    std::string path = ::testing::TempDir() + "/gemmd_rpc_XXXXXX";
    directory_ = mkdtemp(path.data());
  }

  ~ServiceTest() override {
    unlink(SocketPath().c_str());
    rmdir(directory_.c_str());
  }

  std::string SocketPath() const { return directory_ + "/socket"; }

  // How many calls of a method have begun.
  int Begun(const std::string& method) const {
    const std::string metrics = metrics_.Render();
    const std::string series = absl::StrCat(
        "grpc_server_call_started_total{grpc_method=\"gemmd.v1.GemmService/",
        method, "\"} ");
    const size_t at = metrics.find(series);
    return at == std::string::npos
               ? -1
               : std::stoi(metrics.substr(at + series.size()));
  }

  absl::Status Multiply() {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    return FromGrpcStatus(stub_->Sgemm(&context, Product(3, 4, 5), &response));
  }

  std::string directory_;
};

}  // namespace gemmd
