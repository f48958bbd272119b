#include "server/rpc/completion_loop.h"

#include <gmock/gmock.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
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
  auto loop = std::make_unique<CompletionLoop>(
      builder.AddCompletionQueue(),
      CompletionLoopOptions{.looks_ahead = looks_ahead});
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<grpc::Alarm> alarms(kTimes);
  for (grpc::Alarm& alarm : alarms) {  // ready before there is a thread
    alarm.Set(loop->queue(), gpr_inf_past(GPR_CLOCK_MONOTONIC),
              static_cast<Completion*>(&noting));
  }
  loop->Start();
  noting.Wait();
  server->Shutdown();
  loop.reset();  // the queue has events of the server's own
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

// A loop whose queue has a server, without any method.
class RunningLoop {
 public:
  explicit RunningLoop(CompletionLoopOptions options)
      : loop_(std::make_unique<CompletionLoop>(builder_.AddCompletionQueue(),
                                               options)),
        server_(builder_.BuildAndStart()) {
    loop_->Start();
  }
  // The queue has events of the server's own until it is drained.
  ~RunningLoop() {
    server_->Shutdown();
    loop_.reset();
  }

  CompletionLoop* operator->() { return loop_.get(); }
  CompletionLoop* get() { return loop_.get(); }

  // What `ask` says on the polling thread.
  template <typename Ask>
  auto OnThread(Ask ask) {
    const auto answer = std::make_shared<std::promise<decltype(ask())>>();
    loop_->Post([answer, ask] { answer->set_value(ask()); });
    return answer->get_future().get();
  }

 private:
  grpc::ServerBuilder builder_;
  std::unique_ptr<CompletionLoop> loop_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(CompletionLoopTest, RunsWhatIsPostedOnItsThreadOnceAndInOrder) {
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  std::vector<std::vector<int>> ran(kThreads);  // the polling thread's
  std::atomic<int> elsewhere = 0;
  std::latch all(kThreads * kEach);
  RunningLoop loop({});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        loop->Post([&, thread, i] {
          if (CompletionLoop::Current() != loop.get()) ++elsewhere;
          ran[thread].push_back(i);
          all.count_down();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  all.wait();
  std::vector<int> in_order(kEach);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_THAT(ran, ::testing::Each(in_order));
  EXPECT_EQ(elsewhere, 0);
}

TEST(CompletionLoopTest, TakesWhatEndsElsewhereIfItIsOneOfSeveral) {
  RunningLoop alone({});
  EXPECT_FALSE(alone->Takes(/*many=*/true));
  RunningLoop one_of_several({.takes_ends = true});
  EXPECT_TRUE(one_of_several->Takes(/*many=*/true));
  EXPECT_FALSE(one_of_several.OnThread([&] {
    return one_of_several->Takes(/*many=*/true);
  })) << "what ended on this very thread";
}

TEST(CompletionLoopTest, ALoneEndDoesNotWakeASleeper) {
  std::latch awake(1);
  std::latch asked(1);
  RunningLoop loop({.takes_ends = true});
  while (loop->Takes(/*many=*/false)) std::this_thread::yield();
  loop->Post([&] {
    awake.count_down();
    asked.wait();
  });
  awake.wait();
  EXPECT_TRUE(loop->Takes(/*many=*/false));
  asked.count_down();
}

TEST(CompletionLoopTest, GathersUntilNothingComes) {
  std::latch over(1);
  Gatherers gatherers([&] { over.count_down(); });
  EXPECT_FALSE(CompletionLoop::AskForMore()) << "no loop's thread";
  RunningLoop loop({.gatherers = &gatherers});
  EXPECT_TRUE(loop.OnThread([] {
    return CompletionLoop::AskForMore() && CompletionLoop::AskForMore();
  }));
  over.wait();  // or the test hangs
}

}  // namespace
}  // namespace gemmd
