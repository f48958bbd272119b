// A tile of C in the registers of a block's warps, multiplied up from shared
// memory: the inner loop of the sm90 FP32 kernels.
//
// What bounds it. Hopper issues one instruction a cycle and sub-partition, and
// one FFMA a cycle is all it can do: whatever is not an FFMA costs arithmetic.
// Measured on an H200, in cycles of a sub-partition:
//   * an FFMA costs 1, and 1 more where two of the registers it reads are in
//     one bank (odd or even number); a register that the instruction before
//     read in the same place (".reuse") is not read again;
//   * a 16-byte shared load costs 1 to issue and about 0.5 for each of the four
//     registers it writes.
// Hence the large thread tiles, and an order of FFMAs in which two neighbours
// share an operand and the two others lie in different banks. ptxas keeps that
// order only if no FFMA depends on a load of its own basic block: therefore
// four k are loaded whole, used in the next round of the loop, and never
// unrolled further.
//
// Warps and lanes. The tile is cut among kWarpsM x kWarpsN warps; in a warp 8
// lanes lie along m and 4 along n, in z-order, so that a 16-byte load of
// either operand touches each bank once.
//
//     lane:  n ->  0   1   |  16  17         a lane's columns: fours, 16 apart
//         m    ------------+--------
//         |    0 . 1 .     | 16 . 17 .       a lane's rows: see Row()
//         v    2 . 3 .     | 18 . 19 .
//              ...

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90_pipeline.cuh"

namespace gemmd::sm90 {

constexpr int kFfmaTileK = 32;  // of a stage of the ring: 128 bytes

// How A's tile lies in shared memory.
enum class LayoutA {
  kAlongK,  // [m][k], 128-byte rows, 16-byte pieces swizzled as TMA does it
  kAlongM,  // [k][m]
};

// kPadB: floats between the rows of B's tile.
template <LayoutA kLayoutA, int kRows, int kCols, int kWarpsM = 2,
          int kWarpsN = 2, int kPadB = 0>
class FfmaTile {
 public:
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWarpRows = 8 * kRows;
  static constexpr int kWarpColumns = 4 * kCols;
  static constexpr int kTileM = kWarpsM * kWarpRows;
  static constexpr int kTileN = kWarpsN * kWarpColumns;
  static constexpr int kRowsOfAThread = kRows;
  static constexpr int kBytesA = kTileM * kFfmaTileK * 4;
  static constexpr int kRowB = kTileN + kPadB;
  static constexpr int kBytesB = kRowB * kFfmaTileK * 4;
  static constexpr int kFours = kCols / 4;         // of columns, of a thread
  static constexpr int kRowFours = kRows / 4 * 4;  // the rest comes as a pair
  static_assert(kCols % 4 == 0, "a fragment of B is 16 bytes");
  static_assert(kRows % 2 == 0, "one of A is 16 or 8");

  // Of the computing thread that constructs it.
  __device__ __forceinline__ FfmaTile() {
    // TMA's swizzle: piece p of row r lies at p ^ (r % 8); r % 8 is LaneM().
    a_lane_ =
        kLayoutA == LayoutA::kAlongK ? Row(0) * 128 + LaneM() * 16 : Row(0) * 4;
    b_lane_ = Column(0) * 4;
  }

  // The row, in the block's tile, of this thread's row i. Computed anew where
  // it is needed: the inner loop has no register to spare for it.
  static __device__ __forceinline__ int Row(int i) { return Row(i, LaneM()); }
  // The same of the lanes of this warp that are `lane_m`-th along m.
  static __device__ __forceinline__ int Row(int i, int lane_m) {
    const int warp_row = threadIdx.x / 32 % kWarpsM * kWarpRows;
    if (kLayoutA == LayoutA::kAlongK) return warp_row + i * 8 + lane_m;
    if (i >= kRowFours) {
      return warp_row + kRowFours * 8 + lane_m * 2 + i - kRowFours;
    }
    return warp_row + i / 4 * 32 + lane_m * 4 + i % 4;
  }
  // The column of the first of its columns 4c .. 4c + 3, and of its warp's.
  static __device__ __forceinline__ int Column(int c) {
    return WarpColumn() + c * 16 + LaneN() * 4;
  }

  static __device__ __forceinline__ int WarpColumn() {
    return threadIdx.x % kThreads / 32 / kWarpsM * kWarpColumns;
  }
  // Where a lane stands in its warp.
  static __device__ __forceinline__ int LaneM() { return threadIdx.x / 2 % 8; }
  static __device__ __forceinline__ int LaneN() {
    return threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2;
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) sums_[i][j] = 0;
    }
  }

  // Loads the fragments of k = 4 * four .. 4 * four + 3 of a stage.
  __device__ __forceinline__ void Load(uint32_t a, uint32_t b, int four) {
    if (kLayoutA == LayoutA::kAlongK) {
      const uint32_t from = (a + a_lane_) ^ (four << 4);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        LoadFour(a_[0][i], a_[1][i], a_[2][i], a_[3][i], from + i * 8 * 128);
      }
    } else {
      const uint32_t from = a + a_lane_ + four * (4 * kTileM * 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kRowFours; i += 4) {
          LoadFour(a_[k][i], a_[k][i + 1], a_[k][i + 2], a_[k][i + 3],
                   from + k * kTileM * 4 + i * 32);
        }
        if constexpr (kRowFours < kRows) {
          LoadTwo(a_[k][kRowFours], a_[k][kRowFours + 1],
                  from + k * kTileM * 4 + kRowFours * 32 - LaneM() * 8);
        }
      }
    }
    const uint32_t from = b + b_lane_ + four * (4 * kRowB * 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int j = 0; j < kCols; j += 4) {
        LoadFour(b_[k][j], b_[k][j + 1], b_[k][j + 2], b_[k][j + 3],
                 from + k * kRowB * 4 + j * 16);
      }
    }
  }

  // Adds the products of the loaded fragments, in the order of k.
  __device__ __forceinline__ void Multiply() {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int step = 0; step < kCols; ++step) {
          // Back and forth, so that the turn shares an operand too, and turning
          // in columns of one bank, of the other one in every other k. Of the
          // orders tried it leaves the fewest bank conflicts in the machine
          // code: 26 to 32 in 1024 FFMAs of the large tiles.
          const int s = i % 2 == 0 ? step : kCols - 1 - step;
          const int j = (s < kCols - 2 ? s : 2 * kCols - 3 - s) ^ (k & 1);
          Ffma(sums_[i][j], a_[k][i], b_[k][j]);
        }
      }
    }
  }

  // Afterwards FourSums() are alpha times what they were.
  __device__ __forceinline__ void Scale(float alpha) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) sums_[i][j] *= alpha;
    }
  }

  __device__ __forceinline__ float4 FourSums(int i, int c) const {
    return make_float4(sums_[i][4 * c], sums_[i][4 * c + 1],
                       sums_[i][4 * c + 2], sums_[i][4 * c + 3]);
  }
  __device__ __forceinline__ void AddFour(int i, int c, float4 v) {
    sums_[i][4 * c] += v.x;
    sums_[i][4 * c + 1] += v.y;
    sums_[i][4 * c + 2] += v.z;
    sums_[i][4 * c + 3] += v.w;
  }

 private:
  // volatile, so that the order stays as written.
  static __device__ __forceinline__ void Ffma(float& d, float a, float b) {
    asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(d) : "f"(a), "f"(b));
  }
  static __device__ __forceinline__ void LoadFour(float& x, float& y, float& z,
                                                  float& w, uint32_t from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                 : "r"(from)
                 : "memory");
  }
  static __device__ __forceinline__ void LoadTwo(float& x, float& y,
                                                 uint32_t from) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x), "=f"(y)
                 : "r"(from)
                 : "memory");
  }

  float sums_[kRows][kCols];
  float a_[4][kRows];
  float b_[4][kCols];
  uint32_t a_lane_;
  uint32_t b_lane_;
};

// ----- the ring that feeds it -----

// kStages stages of A's and B's tile in shared memory, and for each a barrier
// that says it is full and one that says it is empty. kFillers threads fill it:
// one, through the copy engine (Fill), or many, element by element (CopyFill in
// sm90_ffma_copy.cuh).
template <typename Tile, int kStages, int kFillers = 1>
class FfmaRing {
 public:
  static constexpr int kBytes =
      kStages * (Tile::kBytesA + Tile::kBytesB) + 2 * kStages * 8;
  // What to ask for: the ring starts at a multiple of 1024, as the swizzle
  // needs it.
  static constexpr int kAllocatedBytes = kBytes + 1024;

  // Called by every thread of the block.
  __device__ __forceinline__ explicit FfmaRing(const void* shared)
      : a_((SharedAddress(shared) + 1023) & ~1023u),
        b_(a_ + kStages * Tile::kBytesA),
        full_(b_ + kStages * Tile::kBytesB),
        empty_(full_ + kStages * 8) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) {
        InitBarrier(full_ + s * 8, kFillers);
        InitBarrier(empty_ + s * 8, Tile::kThreads / 32);
      }
      FenceBarrierInit();
    }
    __syncthreads();
  }

  // One thread: fills stages with the steps [first, last) of the tile at
  // (`m`, `n`). `at` must have begun with parity 1.
  template <LayoutA kLayoutA>
  __device__ __forceinline__ void Fill(RingPosition<kStages>& at,
                                       const CUtensorMap& map_a,
                                       const CUtensorMap& map_b, int m, int n,
                                       int first, int last) const {
    for (int step = first; step < last; ++step, at.Advance()) {
      const uint32_t full = full_ + at.stage * 8;
      const uint32_t a = a_ + at.stage * Tile::kBytesA;
      const uint32_t b = b_ + at.stage * Tile::kBytesB;
      const int k = step * kFfmaTileK;
      Wait(empty_ + at.stage * 8, at.parity);
      ArriveExpectingBytes(full, Tile::kBytesA + Tile::kBytesB);
      if (kLayoutA == LayoutA::kAlongK) {
        LoadBox(a, map_a, k, m, full);
      } else {
        LoadBox(a, map_a, m, k, full);
      }
      LoadBox(b, map_b, n, k, full);
    }
  }

  // A stage to fill, when it is empty, and the barrier that says it is full.
  struct Stage {
    uint32_t a;
    uint32_t b;
    uint32_t full;
  };
  __device__ __forceinline__ Stage
  AwaitEmpty(const RingPosition<kStages>& at) const {
    Wait(empty_ + at.stage * 8, at.parity);
    return {a_ + at.stage * Tile::kBytesA, b_ + at.stage * Tile::kBytesB,
            full_ + at.stage * 8};
  }

  // The computing threads: sets `tile` to the sum of `steps` > 0 steps, from
  // every kStride-th stage on.
  template <int kStride = 1>
  __device__ __forceinline__ void Sum(RingPosition<kStages>& at, Tile& tile,
                                      int steps) const {
    tile.Clear();
    uint32_t a = a_ + at.stage * Tile::kBytesA;
    uint32_t b = b_ + at.stage * Tile::kBytesB;
    Wait(full_ + at.stage * 8, at.parity);
    tile.Load(a, b, 0);
#pragma unroll 1
    for (;;) {
#pragma unroll 1
      for (int four = 1; four < kFfmaTileK / 4; ++four) {
        tile.Multiply();
        tile.Load(a, b, four);
      }
      const uint32_t empty = empty_ + at.stage * 8;
      const bool last = --steps == 0;
      at.template Advance<kStride>();
      if (!last) Wait(full_ + at.stage * 8, at.parity);
      tile.Multiply();
      if (threadIdx.x % 32 == 0) Arrive(empty);
      if (last) break;
      a = a_ + at.stage * Tile::kBytesA;
      b = b_ + at.stage * Tile::kBytesB;
      tile.Load(a, b, 0);
    }
  }

 private:
  uint32_t a_;
  uint32_t b_;
  uint32_t full_;
  uint32_t empty_;
};

// ----- C -----

struct FfmaOutput {
  float* c;
  int64_t ldc;
  int m;
  int n;
  float alpha;
  float beta;
  bool vector;  // c and its rows are 16-byte aligned

  // C(row, col) = x + beta * C, if it lies in C.
  __device__ __forceinline__ void StoreOne(int row, int col, float x) const {
    if (row >= m || col >= n) return;
    float* at = c + row * ldc + col;
    *at = beta != 0 ? fmaf(beta, *at, x) : x;
  }

  // C(row, col .. col + 1) = (x, y) + beta * C, as far as it lies in C.
  __device__ __forceinline__ void StoreTwo(int row, int col, float x,
                                           float y) const {
    if (row >= m || col >= n) return;
    float* at = c + row * ldc + col;
    if (vector && col + 1 < n) {
      if (beta != 0) {
        const float2 old = *reinterpret_cast<const float2*>(at);
        x = fmaf(beta, old.x, x);
        y = fmaf(beta, old.y, y);
      }
      *reinterpret_cast<float2*>(at) = make_float2(x, y);
      return;
    }
    at[0] = beta != 0 ? fmaf(beta, at[0], x) : x;
    if (col + 1 < n) at[1] = beta != 0 ? fmaf(beta, at[1], y) : y;
  }

  // C(row, col .. col + 3) likewise.
  __device__ __forceinline__ void Store(int row, int col, float4 v) const {
    if (row >= m) return;
    float* at = c + row * ldc + col;
    if (vector && col + 3 < n) {
      if (beta != 0) {
        const float4 old = *reinterpret_cast<const float4*>(at);
        v.x = fmaf(beta, old.x, v.x);
        v.y = fmaf(beta, old.y, v.y);
        v.z = fmaf(beta, old.z, v.z);
        v.w = fmaf(beta, old.w, v.w);
      }
      *reinterpret_cast<float4*>(at) = v;
      return;
    }
    const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (col + i < n) at[i] = beta != 0 ? fmaf(beta, at[i], each[i]) : each[i];
    }
  }
};

// Writes a tile's sums to C where C's rows are not 16-byte aligned. A lane's
// own fours would go out as single elements 16 bytes apart, each a part of a
// sector of memory; so eight rows at a time go through shared memory and out
// along rows.
template <typename Tile>
struct FfmaRowWriter {
  static constexpr int kRow = Tile::kWarpColumns + 8;  // no bank conflicts
  static constexpr int kFloatsOfAWarp = 8 * kRow;
  static constexpr int kBytes = Tile::kThreads / 32 * kFloatsOfAWarp * 4;

  // `scratch` is the block's kBytes, 16-byte aligned.
  static __device__ __forceinline__ void Write(const Tile& tile,
                                               const FfmaOutput& output, int m,
                                               int n, void* scratch) {
    float* const rows = static_cast<float*>(scratch) +
                        threadIdx.x % Tile::kThreads / 32 * kFloatsOfAWarp;
#pragma unroll
    for (int i = 0; i < Tile::kRowsOfAThread; ++i) {
      __syncwarp();
#pragma unroll
      for (int c = 0; c < Tile::kFours; ++c) {
        *reinterpret_cast<float4*>(rows + Tile::LaneM() * kRow + c * 16 +
                                   Tile::LaneN() * 4) = tile.FourSums(i, c);
      }
      __syncwarp();
#pragma unroll 1
      for (int r = 0; r < 8; ++r) {
#pragma unroll
        for (int c = threadIdx.x % 32; c < Tile::kWarpColumns; c += 32) {
          output.StoreOne(m + Tile::Row(i, r), n + Tile::WarpColumn() + c,
                          rows[r * kRow + c]);
        }
      }
    }
  }
};

}  // namespace gemmd::sm90
