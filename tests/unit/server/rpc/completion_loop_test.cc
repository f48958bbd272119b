#include "server/rpc/completion_loop.h"

#include <gmock/gmock.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <vector>

#include "server/execute/thread_load.h"

namespace gemmd {
namespace {

// Notes whether its thread has more to do.
class Noting final : public Completion {
 public:
  explicit Noting(int times) : over_(times) {}
  void Run(bool) override {
    has_more.push_back(ThreadHasMore());
    over_.count_down();
  }
  void Wait() { over_.wait(); }

  std::vector<bool> has_more;

 private:
  std::latch over_;
};

std::vector<bool> HasMoreInEachOfThree(bool looks_ahead) {
  constexpr int kTimes = 3;
  Noting noting(kTimes);
  grpc::ServerBuilder builder;
  CompletionLoop loop(builder.AddCompletionQueue(), {}, nullptr, looks_ahead);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<grpc::Alarm> alarms(kTimes);
  for (grpc::Alarm& alarm : alarms) {  // ready before there is a thread
    alarm.Set(loop.queue(), gpr_inf_past(GPR_CLOCK_MONOTONIC),
              static_cast<Completion*>(&noting));
  }
  loop.Start();
  noting.Wait();
  server->Shutdown();
  return noting.has_more;
}

TEST(CompletionLoopTest, ACompletionKnowsWhetherAnotherIsReady) {
  EXPECT_THAT(HasMoreInEachOfThree(/*looks_ahead=*/true),
              ::testing::ElementsAre(true, true, false));
}

TEST(CompletionLoopTest, NoThreadHasMoreWhereNoneLooksAhead) {
  EXPECT_THAT(HasMoreInEachOfThree(/*looks_ahead=*/false),
              ::testing::Each(false));
}

}  // namespace
}  // namespace gemmd
