// How tiles are dealt to workers that should go in step, so that they share
// operands in the L2 cache: tile after tile in rounds; and where the last round
// would keep few of them busy, its tiles are cut along k.
//
//   worker       0     1     2     3     4     5
//   round 0     t0    t1    t2    t3    t4    t5
//   round 1     t6.0  t6.1  t6.2  t7.0  t7.1  t7.2     two tiles, three slices
//
// The worker with a tile's last slice adds the sums of the workers before it.
// What is dealt to whom follows from the shape and the number of workers alone.

#pragma once

#include <cstdint>

#include "kernels/cuda/stream_k.h"

namespace gemmd {

// The steps [first, last) of a tile, slice `slice` of `slices`.
struct SplitTailPart {
  int64_t tile;
  int first;
  int last;
  int slice;
  int slices;
};

struct SplitTail {
  int64_t tiles = 0;
  int steps_per_tile = 0;
  int workers = 0;
  int tail_slices = 1;  // of each tile of the last, partial round

  static SplitTail Of(int64_t tiles, int steps_per_tile, int workers) {
    // A slice of fewer steps would cost more to add up than it saves.
    constexpr int kFewestSteps = 8;
    SplitTail plan = {tiles, steps_per_tile, workers, 1};
    const int64_t tail = tiles % workers;
    if (tail > 0) {
      const int64_t most = steps_per_tile / kFewestSteps;
      plan.tail_slices = static_cast<int>(workers / tail);
      if (plan.tail_slices > most) plan.tail_slices = static_cast<int>(most);
      if (plan.tail_slices < 1) plan.tail_slices = 1;
    }
    return plan;
  }

  // How many parts `worker` does.
  GEMMD_HOST_DEVICE int Rounds(int worker) const {
    const int64_t tail = tiles % workers;
    return static_cast<int>(tiles / workers) + (worker < tail * tail_slices);
  }

  GEMMD_HOST_DEVICE SplitTailPart Part(int worker, int round) const {
    if (round < tiles / workers) {
      return {int64_t{round} * workers + worker, 0, steps_per_tile, 0, 1};
    }
    const int slice = worker % tail_slices;
    const int64_t steps = steps_per_tile;
    return {int64_t{round} * workers + worker / tail_slices,
            static_cast<int>(slice * steps / tail_slices),
            static_cast<int>((slice + 1) * steps / tail_slices), slice,
            tail_slices};
  }
};

}  // namespace gemmd
