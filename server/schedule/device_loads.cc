#include "server/schedule/device_loads.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/schedule/cost.h"

namespace gemmd {
namespace {

// Other programs may share the machine.
constexpr double kPatience = 10;

}  // namespace

DeviceLoads::DeviceLoads(std::span<const std::unique_ptr<Device>> devices,
                         MonotonicDuration timeout)
    : timeout_(timeout) {
  for (const std::unique_ptr<Device>& device : devices) {
    states_.push_back({device.get(), device->info().streams});
  }
}

int DeviceLoads::LeastLoaded() const {
  int best = -1;
  for (int i = 0; i < size(); ++i) {
    if (!IsFree(i) || states_[i].passed_over) continue;
    if (best < 0 || states_[i].cost < states_[best].cost) best = i;
  }
  return best;
}

void DeviceLoads::NextRound() {
  for (State& state : states_) state.passed_over = false;
}

DeviceLoads::Runs::iterator DeviceLoads::Begin(int device, Batch batch,
                                               MonotonicTime now) {
  State& state = states_[device];
  Run& run = state.runs.emplace_back(Run{device, std::move(batch)});
  run.begun = now;
  for (const auto& task : run.batch.tasks) {
    run.cost += CostOf(*task);
    run.flops += task->spec().shape.flops();
  }
  --state.free_streams;
  state.cost += run.cost;
  state.flops += run.flops;
  return std::prev(state.runs.end());
}

DeviceLoads::Runs DeviceLoads::End(Runs::iterator run) {
  State& state = states_[run->device];
  Runs ended;
  ended.splice(ended.end(), state.runs, run);
  ++state.free_streams;
  // Exactly 0 when there is nothing: sums of doubles drift.
  state.cost = state.runs.empty() ? 0 : state.cost - run->cost;
  state.flops = state.runs.empty() ? 0 : state.flops - run->flops;
  if (state.stuck) --abandoned_runs_;
  return ended;
}

bool DeviceLoads::IsFree(int device) const {
  return !states_[device].lost && states_[device].free_streams > 0;
}

bool DeviceLoads::IsSound(int device) const {
  if (device != kAnyDevice) return !states_[device].lost;
  return std::any_of(states_.begin(), states_.end(),
                     [](const State& state) { return !state.lost; });
}

bool DeviceLoads::Lose(int device) {
  return !std::exchange(states_[device].lost, true);
}

MonotonicTime DeviceLoads::StuckAt(int device) const {
  const State& state = states_[device];
  if (state.lost || state.runs.empty()) return kNever;
  // At most a century, which a MonotonicTime holds.
  const std::chrono::duration<double> work(std::min(
      kPatience * state.flops / state.device->info().slowest_flops, 3e9));
  return state.runs.front().begun + timeout_ +
         std::chrono::duration_cast<MonotonicDuration>(work);
}

std::vector<std::shared_ptr<Task>> DeviceLoads::Abandon(int device) {
  State& state = states_[device];
  state.lost = true;
  state.stuck = true;
  std::vector<std::shared_ptr<Task>> tasks;
  for (const Run& run : state.runs) {
    ++abandoned_runs_;
    tasks.insert(tasks.end(), run.batch.tasks.begin(), run.batch.tasks.end());
  }
  return tasks;
}

}  // namespace gemmd
