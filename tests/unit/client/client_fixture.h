// What the tests of the client have in common.

#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gemmd/client.h"
#include "tests/support/client_matrices.h"
#include "tests/unit/client/fake_server.h"

namespace gemmd {

// What the fake server answers, by the same arithmetic.
std::vector<float> Expected(const Matrix& a, const Matrix& b);

bool SameBits(const Matrix& c, const std::vector<float>& expected);

// A handler that multiplies.
absl::Status Answer(grpc::ServerContext&, const v1::SgemmRequest& request,
                    v1::SgemmResponse* response);

// Answers with `error` as often as said, then as it should.
FakeServer::Handler FailTimes(int times, absl::Status error);

// Answers when the test lets it, or when the client is gone.
class Gate {
 public:
  FakeServer::Handler Handler() {
    return [this](grpc::ServerContext& context, const v1::SgemmRequest& request,
                  v1::SgemmResponse* response) {
      std::unique_lock<std::mutex> lock(mu_);
      ++waiting_;
      changed_.notify_all();
      while (!open_ && !context.IsCancelled()) {
        changed_.wait_for(lock, std::chrono::milliseconds(5));
      }
      --waiting_;
      changed_.notify_all();
      lock.unlock();
      return Answer(context, request, response);
    };
  }
  void WaitFor(int calls) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return waiting_ == calls; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

std::unique_ptr<Client> NewClient(const ClientOptions& options);

// Begins so many products and destroys the client; how many callbacks said
// CANCELLED by then, each called once.
int CancelledByDestruction(std::unique_ptr<Client> client, int products);

// Waits until `condition` holds; false after 20 s.
bool Eventually(const std::function<bool()>& condition);

RetryPolicy QuickRetries();

}  // namespace gemmd
