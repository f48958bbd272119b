// Keeps products on their way, closed loop or open.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/gemmctl/bench/measurement.h"
#include "client/gemmctl/bench/workload.h"
#include "gemmd/client.h"

namespace gemmd::gemmctl {

// How fast products begin.
struct Pace {
  int in_flight = 1;  // closed loop: always so many; open loop: at most

  // Open loop: products a second, whatever the answers do. A product's latency
  // counts from when it should have begun, so a server that falls behind is
  // seen to, even where the limit in flight holds products back.
  std::optional<double> rate = {};
  bool poisson = false;  // exponential intervals, else constant
};

// A load between Start and Stop; what ends meanwhile is measured in windows.
//
// One thread calls; the client's threads begin products and take answers.
class Load {
 public:
  // Both outlive the load. With `keep_going`, errors are counted; without, the
  // first ends the load.
  Load(Client* client, Workload* workload, bool keep_going, bool progress);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Begins products until Stop, or `count` of them if that is not 0.
  void Start(const Pace& pace, int64_t count = 0);

  // What ends from the last cut (or Start) on, within `duration`; less time
  // when the load ends first.
  Measurement Cut(absl::Duration duration);

  // Begins no more (with a count: those that are left), waits for what is in
  // flight and returns what ended since the last cut.
  Measurement Stop();

  // Of all products so far: where their answers are.
  const std::vector<std::unique_ptr<Workload::Slot>>& slots() const {
    return slots_;
  }

 private:
  // All with mu_ held; Begin lets go of it for a while.
  bool MayBegin() const;
  bool IsOver() const;
  void Begin(std::unique_lock<std::mutex>& lock, Workload::Slot* slot,
             absl::Time intended);
  Measurement TakeMeasurement();

  void Ended(size_t shape, Workload::Slot* slot, absl::Time intended,
             absl::StatusOr<SgemmAnswer> answer);
  void RunOpenLoop();
  void ShowProgress(const Measurement& measured, absl::Duration elapsed) const;

  Client* const client_;
  const bool keep_going_;
  const bool progress_;

  std::mutex mu_;
  std::condition_variable changed_;
  Workload* const workload_;  // the rest is guarded by mu_
  std::vector<std::unique_ptr<Workload::Slot>> slots_;
  std::vector<Workload::Slot*> free_;
  Pace pace_;
  Measurement measured_;
  absl::Time cut_;
  int64_t count_ = 0;
  int64_t begun_ = 0;
  int in_flight_ = 0;
  bool stopping_ = true;
  std::minstd_rand random_{2};
  std::thread open_loop_;
};

}  // namespace gemmd::gemmctl
