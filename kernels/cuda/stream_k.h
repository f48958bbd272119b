// Stream-K: the tiles of a product, cut along k into steps, are dealt evenly to
// a fixed number of workers, so that no worker idles while others finish the
// last tiles.
//
//   the steps of all tiles in a row   |--tile 0--|--tile 1--|--tile 2--|
//   dealt to 4 workers                |--w0---|--w1---|--w2---|--w3----|
//
// A worker goes through its steps from the last to the first, tile by tile.
// What it does of one tile is a segment. Whoever has a tile's last step owns
// the tile: it adds the other workers' partial sums, in a fixed order, and
// writes C. A worker leaves at most one partial sum, that of its first segment;
// the tile's owner, a later worker, comes to that tile last of all, so that it
// seldom waits. A worker waits only for workers before it, which the device
// starts first: the wait ends also where not all workers fit at once.
//
// How the steps are dealt, and so the result's bits, follow from the shape and
// the number of workers alone.
//
// Source: Osama et al., Stream-K, PPoPP 2023, doi:10.1145/3572848.3577479.

#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GEMMD_HOST_DEVICE __host__ __device__
#else
#define GEMMD_HOST_DEVICE
#endif

namespace gemmd {

struct StreamK {
  int64_t tiles = 0;
  int64_t steps_per_tile = 0;
  int workers = 0;  // 1 .. tiles * steps_per_tile

  // The first of the steps, of all tiles in a row, that `worker` does.
  GEMMD_HOST_DEVICE int64_t FirstStep(int64_t worker) const {
    return worker * (tiles * steps_per_tile) / workers;
  }

  // The worker that does the first step of `tile`.
  GEMMD_HOST_DEVICE int FirstWorkerOf(int64_t tile) const {
    const int64_t step = tile * steps_per_tile;
    int64_t worker = step * workers / (tiles * steps_per_tile);
    while (FirstStep(worker + 1) <= step) ++worker;
    return static_cast<int>(worker);
  }
};

// The steps [first, last) of one tile.
struct StreamKSegment {
  int64_t tile;
  int first;
  int last;
};

// A worker's segments, in the order in which it does them.
class StreamKSegments {
 public:
  GEMMD_HOST_DEVICE StreamKSegments(const StreamK& plan, int worker)
      : steps_per_tile_(plan.steps_per_tile),
        begin_(plan.FirstStep(worker)),
        end_(plan.FirstStep(worker + 1)) {}

  GEMMD_HOST_DEVICE bool done() const { return end_ <= begin_; }

  GEMMD_HOST_DEVICE StreamKSegment Next() {
    const int64_t tile = (end_ - 1) / steps_per_tile_;
    const int64_t tile_begin = tile * steps_per_tile_;
    const int64_t begin = begin_ > tile_begin ? begin_ : tile_begin;
    const StreamKSegment segment = {tile, static_cast<int>(begin - tile_begin),
                                    static_cast<int>(end_ - tile_begin)};
    end_ = begin;
    return segment;
  }

 private:
  int64_t steps_per_tile_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace gemmd
