#include "tests/bench/raw_load.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

namespace gemmd {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

Clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

double LoadResult::Percentile(double percent) const {
  if (latencies_us.empty()) return std::nan("");
  std::vector<double> sorted = latencies_us;
  const auto at = static_cast<size_t>(percent / 100 *
                                      static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(at),
                   sorted.end());
  return sorted[at];
}

// A thread's calls.
class RawLoad::Worker {
 public:
  Worker(const RawLoad& load, int number) : load_(load), number_(number) {}

  void RunClosed(int in_flight, Clock::time_point end) {
    for (int i = 0; i < in_flight; ++i) Start(Clock::now());
    void* tag;
    bool ok;
    while (under_way_ > 0 && queue_.Next(&tag, &ok)) {
      End(static_cast<Call*>(tag));
      if (Clock::now() < end) Start(Clock::now());
    }
  }

  void RunOpen(double calls_per_second, Clock::time_point end, unsigned seed) {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap(calls_per_second);
    Clock::time_point due = Clock::now();
    while (due < end || under_way_ > 0) {
      void* tag;
      bool ok;
      const auto wait = due < end ? due - Clock::now() : FromSeconds(1);
      const auto deadline =
          std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
      if (queue_.AsyncNext(&tag, &ok, deadline) ==
          grpc::CompletionQueue::GOT_EVENT) {
        End(static_cast<Call*>(tag));
      }
      for (; due < end && due <= Clock::now();
           due += FromSeconds(gap(random))) {
        Start(due);
      }
    }
  }

  double CallOnce(grpc::ByteBuffer* answer) {
    Start(Clock::now());
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    *answer = static_cast<Call*>(tag)->answer;
    End(static_cast<Call*>(tag));
    return latencies_us_.back();
  }

  const std::vector<double>& latencies_us() const { return latencies_us_; }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::Status status;
    grpc::ByteBuffer answer;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    Clock::time_point due;
  };

  void Start(Clock::time_point due) {
    auto* const call = new Call;
    call->due = due;
    call->context.set_wait_for_ready(true);
    if (load_.target_.echo_bytes > 0) {
      call->context.AddMetadata("echo-bytes",
                                std::to_string(load_.target_.echo_bytes));
    }
    const size_t threads = static_cast<size_t>(load_.threads_);
    const size_t stub = (static_cast<size_t>(number_) + threads * next_++) %
                        load_.stubs_.size();
    call->reader = load_.stubs_[stub]->PrepareUnaryCall(
        &call->context, load_.target_.method, load_.request_, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
    ++under_way_;
  }

  void End(Call* call) {
    if (!call->status.ok()) {
      std::fprintf(stderr, "%s: %s\n", load_.target_.method.c_str(),
                   call->status.error_message().c_str());
      std::exit(1);
    }
    latencies_us_.push_back(MicrosecondsBetween(call->due, Clock::now()));
    delete call;
    --under_way_;
  }

  const RawLoad& load_;
  const int number_;
  grpc::CompletionQueue queue_;
  size_t next_ = 0;
  int under_way_ = 0;
  std::vector<double> latencies_us_;
};

RawLoad::RawLoad(RawTarget target, const grpc::ByteBuffer& request,
                 int connections, int threads)
    : target_(std::move(target)), request_(request), threads_(threads) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Channels to one address share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(
        std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
            target_.address, grpc::InsecureChannelCredentials(), arguments)));
  }
}

LoadResult RawLoad::RunClosed(int in_flight, double seconds) {
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = start + FromSeconds(seconds);
  for (int i = 0; i < threads_; ++i) {
    const int share = (in_flight + threads_ - 1 - i) / threads_;
    workers.push_back(std::make_unique<Worker>(*this, i));
    threads.emplace_back([worker = workers.back().get(), share, end] {
      worker->RunClosed(share, end);
    });
  }
  LoadResult result;
  for (int i = 0; i < threads_; ++i) {
    threads[i].join();
    const auto& part = workers[i]->latencies_us();
    result.latencies_us.insert(result.latencies_us.end(), part.begin(),
                               part.end());
  }
  result.requests_per_second = static_cast<double>(result.latencies_us.size()) *
                               1e6 / MicrosecondsBetween(start, Clock::now());
  return result;
}

LoadResult RawLoad::RunOpen(double calls_per_second, double seconds) {
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  const Clock::time_point end = Clock::now() + FromSeconds(seconds);
  for (int i = 0; i < threads_; ++i) {
    workers.push_back(std::make_unique<Worker>(*this, i));
    threads.emplace_back([worker = workers.back().get(), end, i,
                          rate = calls_per_second / threads_] {
      worker->RunOpen(rate, end, static_cast<unsigned>(i));
    });
  }
  LoadResult result;
  for (int i = 0; i < threads_; ++i) {
    threads[i].join();
    const auto& part = workers[i]->latencies_us();
    result.latencies_us.insert(result.latencies_us.end(), part.begin(),
                               part.end());
  }
  result.requests_per_second =
      static_cast<double>(result.latencies_us.size()) / seconds;
  return result;
}

double RawLoad::CallOnce(grpc::ByteBuffer* answer) {
  return Worker(*this, 0).CallOnce(answer);
}

}  // namespace gemmd
