// What each device has to do: which gets the next batch, and which is stuck.

#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "server/execute/backend.h"
#include "server/monotonic_time.h"
#include "server/schedule/batch_queue.h"

namespace gemmd {

// Pure but for what the devices say of themselves; thread-compatible.
class DeviceLoads {
 public:
  // A batch and the stream that it has.
  struct Run {
    int device;
    Batch batch;
    double cost = 0;  // CostOf all of it
    double flops = 0;
    MonotonicTime begun;
  };
  using Runs = std::list<Run>;

  // A device whose oldest batch has not ended after `timeout`, and ten times
  // what all its work takes at its slowest besides, is stuck.
  DeviceLoads(std::span<const std::unique_ptr<Device>> devices,
              MonotonicDuration timeout);

  int size() const { return static_cast<int>(states_.size()); }

  // The sound device with a free stream and the least to do, but for those
  // that were passed over since the last NextRound; -1 if there is none.
  int LeastLoaded() const;
  void PassOver(int device) { states_[device].passed_over = true; }
  void NextRound();

  // Takes a stream of `device`; End gives it back, and the run.
  Runs::iterator Begin(int device, Batch batch, MonotonicTime now);
  Runs End(Runs::iterator run);

  // Whether `device` can take work now, and whether it will ever again, or any
  // device will (kAnyDevice).
  bool IsFree(int device) const;
  bool IsSound(int device) const;

  // It gets no more work. False: so it was already.
  bool Lose(int device);

  // When `device` will be stuck if nothing ends; kNever if it is lost or idle.
  MonotonicTime StuckAt(int device) const;

  // Loses a stuck device; what runs on it. Its runs may yet end.
  std::vector<std::shared_ptr<Task>> Abandon(int device);
  int abandoned_runs() const { return abandoned_runs_; }

  double cost(int device) const { return states_[device].cost; }

 private:
  struct State {
    Device* device;
    int free_streams;
    double cost = 0;
    double flops = 0;
    Runs runs;  // oldest first
    bool lost = false;
    bool stuck = false;
    bool passed_over = false;
  };

  const MonotonicDuration timeout_;
  std::vector<State> states_;
  int abandoned_runs_ = 0;
};

}  // namespace gemmd
