// How long a launch takes.

#pragma once

#include <functional>
#include <vector>

#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {

// Enqueues launch number i on the stream.
using LaunchNumber = std::function<void(int)>;

struct Timing {
  double us_min = 0;
  double us_median = 0;
  double us_p95 = 0;
};

// What ways of timing there are; a ratio compares the same way.
enum class TimingMethod {
  kEvents,  // an event before and after each launch
  kGraph,   // replays of a CUDA graph of many launches, each divided by their
            // number: the gaps between launches do not count
};

// Microseconds of one launch, roughly, from a single one after a first.
double EstimateMicroseconds(const LaunchNumber& launch, cudaStream_t stream);

// Times launches 0, 1, 2, ... for about `seconds`, at least 5 times, after some
// to warm up. `us` is what EstimateMicroseconds said; `sets` is the number of
// operand sets that the launch numbers go round.
Timing TimeLaunches(TimingMethod method, const LaunchNumber& launch, int sets,
                    double us, double seconds, cudaStream_t stream);

}  // namespace gemmd
