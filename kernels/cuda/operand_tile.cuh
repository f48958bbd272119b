// A tile of an operand in shared memory: how it is copied there, and how it is
// read in fragments of four k, 16 bytes at a time.
//
// op(A) and op(B) are alike once k is told apart from the other dimension, m of
// A or n of B, called `outer` as in tile.cuh. A tile lies
//
//   along k:     [outer][kK], the 16-byte pieces of a row swizzled, so that the
//                pieces of eight neighbouring rows at one k are in other banks;
//   along outer: [kK][outer], as the operand is stored, or turned on the way.
//
// Which of them matters for arithmetic too. A 16-byte load fills four registers
// in a row, which lie in two banks by turns: by k or by outer. An FMA reads an
// element of A and one of B, of which its neighbour shares one (`.reuse`), and
// its sum: the one not shared and the sum must lie in different banks. A sum
// has one register for all k, so what is not shared must lie along outer. Both
// along k, every second FMA took two cycles.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gemmd {

__device__ __forceinline__ uint32_t SharedOffset(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts a copy of kBytes to shared memory.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t to, const float* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                 "l"(from)
                 : "memory");
  } else {
    static_assert(kBytes == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from)
                 : "memory");
  }
}
// The same, or a zero where `bytes` is 0; `from` may be read in any case.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t to, const float* from,
                                          int bytes) {
  static_assert(kBytes == 4);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(from), "r"(bytes)
               : "memory");
}

// Ends a group of copies, which may be empty.
__device__ __forceinline__ void EndCopyGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Returns when all but the last kPending groups of this thread are there.
template <int kPending>
__device__ __forceinline__ void AwaitCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// How a tile lies in shared memory.
enum class TileLayout {
  kAlongK,
  kAlongOuter,
  kTurned,  // along outer, of an operand that is stored along k
};

template <TileLayout kLayout, int kOuter, int kK>
struct OperandTile {
  static_assert(kK == 16 || kK == 32, "the swizzle is for rows of 64 or 128");
  static constexpr bool kAlongK = kLayout == TileLayout::kAlongK;
  static constexpr int kPieces = kK / 4;  // of a row along k
  // Of a row, in floats. Turned, eight k of four outer are written at once:
  // padded, they lie in 32 banks.
  static constexpr int kPitch =
      kAlongK ? kK : kOuter + (kLayout == TileLayout::kTurned ? 4 : 0);
  static constexpr int kBytes = (kAlongK ? kOuter : kK) * kPitch * 4;

  // The XOR on the number of a piece in row `outer` of a tile along k.
  static __device__ __forceinline__ int Swizzle(int outer) {
    return kK == 32 ? outer & 7 : outer >> 1 & 3;
  }
  // From the tile's start to an element, in bytes.
  static __device__ __forceinline__ int Offset(int outer, int k) {
    return 4 * (kAlongK
                    ? outer * kPitch + ((k / 4 ^ Swizzle(outer)) * 4) + k % 4
                    : k * kPitch + outer);
  }
};

// A thread's share of the copies that bring an operand's tiles, one after the
// other along k, into shared memory. All edges of the operand are dealt with
// here: what is past k arrives as zeros, what is past outer as anything inside,
// since it only reaches elements of C that are not there.
//
// kFewRegisters: addresses of rows are made step by step, since the compiler
// would keep them all in registers; without it they do not wait for each other.
template <TileLayout kLayout, int kOuter, int kK, int kThreads,
          bool kFewRegisters>
class OperandReader {
  using Tile = OperandTile<kLayout, kOuter, kK>;
  // How the operand is stored.
  static constexpr bool kAlongK = kLayout != TileLayout::kAlongOuter;

 public:
  // Tiles from `x` on, where `outer_left` > 0 of outer and `k_left` of k lie
  // inside. `vector`: x and its rows are 16-byte aligned.
  __device__ __forceinline__ OperandReader(const float* x, int64_t ld,
                                           int64_t outer_left, int64_t k_left,
                                           bool vector)
      : x_(x),
        ld_(ld),
        last_(static_cast<int>(min(outer_left, int64_t{kOuter})) - 1),
        k_left_(k_left),
        vector_(kLayout != TileLayout::kTurned && vector) {}

  // Starts this thread's copies of the next tile.
  __device__ __forceinline__ void Copy(uint32_t tile) {
    // A piece past outer lies in its row's padding, which the last row may
    // lack.
    const bool ends_in_piece = !kAlongK && vector_ && last_ % 4 != 3;
    const bool whole = k_left_ > kK || (k_left_ == kK && !ends_in_piece);
    if (kLayout == TileLayout::kTurned) {
      whole ? CopyTurned<true>(tile) : CopyTurned<false>(tile);
    } else if (vector_) {
      whole ? CopyPieces<true>(tile) : CopyPieces<false>(tile);
    } else {
      whole ? CopyElements<true>(tile) : CopyElements<false>(tile);
    }
    x_ += kAlongK ? kK : kK * ld_;
    k_left_ -= kK;
  }

 private:
  // Of a tile whose k is whole no copy needs to ask what is inside.
  template <bool kWhole>
  __device__ __forceinline__ void CopyPieces(uint32_t tile) const {
    constexpr int kAcross = (kAlongK ? kK : kOuter) / 4;  // pieces of a row
    constexpr int kRows = kAlongK ? kOuter : kK;
    // Rows, of a round of copies. Where they are not all threads' worth, the
    // others have none.
    constexpr int kStride =
        kAlongK ? kThreads / kAcross : std::bit_floor(kThreads / kAcross + 0u);
    static_assert(!kAlongK || kStride % 8 == 0,
                  "the swizzle is the same every 8 rows");
    const int across = threadIdx.x % kAcross * 4;
    const int first = threadIdx.x / kAcross;
    if (kStride * kAcross < kThreads && first >= kStride) return;
    const uint32_t to = tile + (kAlongK ? Tile::Offset(first, across)
                                        : Tile::Offset(across, first));
    const int inside = kAlongK ? across : min(across, last_ / 4 * 4);
    const int k_inside = static_cast<int>(min(k_left_, int64_t{kK}));
    const float* from = FirstRow(first) + inside;
#pragma unroll(kWhole ? kRows : 1)
    for (int row = 0; row < kRows; row += kStride) {
      if (row + kStride > kRows && first + row >= kRows) break;
      const uint32_t row_to = to + row * (kAcross * 16);
      const int k_left = kAlongK ? k_inside - across : k_inside - (first + row);
      const int left = kAlongK ? k_left : k_left > 0 ? last_ + 1 - inside : 0;
      if (kWhole || left >= 4) {
        CopyAsync<16>(row_to, from);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          CopyAsync<4>(row_to + 4 * e, e < left ? from + e : x_,
                       e < left ? 4 : 0);
        }
      }
      NextRow<kStride>(from, first, row, inside);
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void CopyElements(uint32_t tile) const {
    constexpr int kAcross = kAlongK ? kK : kOuter;
    constexpr int kRows = kAlongK ? kOuter : kK;
    // Of a row, in a round of copies: the largest power of two that divides it.
    constexpr int kAtOnce = std::min(kAcross & -kAcross, kThreads);
    constexpr int kStride = kThreads / kAtOnce;
    static_assert(kRows % kStride == 0);
    // More would take registers from a small tile's blocks.
    constexpr int kUnroll = !kWhole ? 1 : kOuter > 32 ? 8 : 4;
    const int first = threadIdx.x / kAtOnce;
#pragma unroll 1
    for (int part = 0; part < kAcross; part += kAtOnce) {
      const int across = part + threadIdx.x % kAtOnce;
      const int inside = kAlongK ? across : min(across, last_);
      const float* from = FirstRow(first) + inside;
#pragma unroll(kUnroll)
      for (int row = 0; row < kRows; row += kStride) {
        const int k = kAlongK ? across : first + row;
        CopyElement<kWhole>(
            tile + (kAlongK ? Tile::Offset(first + row, across)
                            : Tile::Offset(across, first + row)),
            from, k);
        NextRow<kStride>(from, first, row, inside);
      }
    }
  }

  // Eight threads along k: 32 bytes of a row, to eight rows of the tile.
  template <bool kWhole>
  __device__ __forceinline__ void CopyTurned(uint32_t tile) const {
    constexpr int kStride = kThreads / 8;
    const int first_k = threadIdx.x % 8;
    const int first = threadIdx.x / 8;
    const float* from = FirstRow(first) + first_k;
#pragma unroll
    for (int row = 0; row < kOuter; row += kStride) {
      const uint32_t to = tile + Tile::Offset(first + row, first_k);
#pragma unroll
      for (int k = 0; k < kK; k += 8) {
        CopyElement<kWhole>(to + k * (Tile::kPitch * 4), from + k, first_k + k);
      }
      NextRow<kStride>(from, first, row, first_k);
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void CopyElement(uint32_t to, const float* from,
                                              int k) const {
    if constexpr (kWhole) {
      CopyAsync<4>(to, from);
    } else {
      CopyAsync<4>(to, k < k_left_ ? from : x_, k < k_left_ ? 4 : 0);
    }
  }

  // Where a row begins. Along k, rows past the last inside are read as one that
  // is.
  __device__ __forceinline__ const float* FirstRow(int row) const {
    return x_ + int64_t{kAlongK ? min(row, last_) : row} * ld_;
  }
  // From row `first + row` to the next of a round of copies.
  template <int kStride>
  __device__ __forceinline__ void NextRow(const float*& from, int first,
                                          int row, int inside) const {
    if constexpr (kFewRegisters) {
      if (!kAlongK || first + row + kStride <= last_) from += kStride * ld_;
    } else if constexpr (kAlongK) {
      from = FirstRow(first + row + kStride) + inside;
    } else {
      from = FirstRow(first) + inside + (row + kStride) * ld_;
    }
  }

  const float* x_;
  const int64_t ld_;
  const int last_;  // of outer, inside the tile
  int64_t k_left_;
  const bool vector_;
};

// What a thread multiplies: its kPer outer indices at four k. kLanes threads of
// a warp share the warp's outer indices; those along the other operand read the
// same.
template <TileLayout kLayout, int kOuter, int kK, int kLanes, int kPer>
class OperandFragment {
  using Tile = OperandTile<kLayout, kOuter, kK>;
  static_assert(Tile::kAlongK || kPer % 4 == 0, "fragments are 16 bytes");

 public:
  // The tile's outer index of this thread's i, on `lane` of kLanes, from the
  // first of its warp's on.
  static __device__ __forceinline__ int Index(int lane, int i) {
    return Tile::kAlongK ? lane + kLanes * i
                         : (lane + kLanes * (i / 4)) * 4 + i % 4;
  }

  // Loads k = 4 * four .. 4 * four + 3 of the tile at `tile`; the warp's first
  // outer index is `warp`, a multiple of kLanes * kPer.
  __device__ __forceinline__ void Load(uint32_t tile, int warp, int lane,
                                       int four) {
    if constexpr (Tile::kAlongK) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        // Offset(), so written that what depends on i is a constant.
        const int base = warp + lane;
        const int turn = Tile::Swizzle(base) ^ Tile::Swizzle(kLanes * i) ^ four;
        LoadFour(values_[0][i], values_[1][i], values_[2][i], values_[3][i],
                 tile + (base * kK * 4 + (turn << 4)) + i * (kLanes * kK * 4));
      }
    } else {
      constexpr int kPitch = Tile::kPitch;
      const uint32_t from = tile + (warp + lane * 4) * 4 + four * (kPitch * 16);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kPer; i += 4) {
          LoadFour(values_[k][i], values_[k][i + 1], values_[k][i + 2],
                   values_[k][i + 3], from + (k * kPitch + i * kLanes) * 4);
        }
      }
    }
  }

  __device__ __forceinline__ float At(int k, int i) const {
    return values_[k][i];
  }

 private:
  // volatile, so that the order stays as written.
  static __device__ __forceinline__ void LoadFour(float& x, float& y, float& z,
                                                  float& w, uint32_t from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                 : "r"(from)
                 : "memory");
  }

  float values_[4][kPer];
};

// sums += a b, in the order of k. Neighbours share an element of B if kShareB,
// else one of A.
template <bool kShareB, int kRows, int kCols, typename FragmentA,
          typename FragmentB>
__device__ __forceinline__ void MultiplyFragments(float (&sums)[kRows][kCols],
                                                  const FragmentA& a,
                                                  const FragmentB& b) {
  constexpr int kShared = kShareB ? kCols : kRows;
  constexpr int kOthers = kShareB ? kRows : kCols;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int s = 0; s < kShared; ++s) {
#pragma unroll
      for (int step = 0; step < kOthers; ++step) {
        // The order that sm90_ffma_tile.cuh found to leave the fewest register
        // bank conflicts.
        const int t = s % 2 == 0 ? step : kOthers - 1 - step;
        const int o = (t < kOthers - 2 ? t : 2 * kOthers - 3 - t) ^ (k & 1);
        const int i = kShareB ? o : s;
        const int j = kShareB ? s : o;
        asm volatile("fma.rn.f32 %0, %1, %2, %0;"
                     : "+f"(sums[i][j])
                     : "f"(a.At(k, i)), "f"(b.At(k, j)));
      }
    }
  }
}

}  // namespace gemmd
