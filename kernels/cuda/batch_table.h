// The products of one launch as small_tiles passes them to the device, by
// value: each distinct shape once, then three pointers a product, or two
// entries for any number of products at equal distances. So a launch takes
// 1361 products of one shape anywhere, 314 of as many shapes, or the thousands
// of a strided batch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define GEMMD_HOST_DEVICE __host__ __device__
#else
#define GEMMD_HOST_DEVICE
#endif

namespace gemmd {

// Products of one shape, next to each other in the table. k is 0 where alpha
// is, and the other way round, so that a kernel needs no case for either.
struct BatchShape {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t lda;
  int64_t ldb;
  int64_t ldc;
  float alpha;
  float beta;
  uint32_t first_tile;   // the number of its first block
  uint32_t tiles;        // blocks, of one product
  uint32_t tiles_n;      // of these along n
  uint32_t first_entry;  // in the table
  bool vector_a;         // the first element and all rows are 16-byte aligned
  bool vector_b;
  bool strided;  // two entries: the first product, the distances
};

// Where a product's operands are, or how far on those of the next are.
struct BatchEntry {
  uintptr_t a;  // const float*, or bytes
  uintptr_t b;
  uintptr_t c;  // float*

  friend bool operator==(const BatchEntry&, const BatchEntry&) = default;
};

// A kernel's parameter: pass it as `const __grid_constant__`. Shapes lie at the
// start and entries, in reverse, at the end, which is a number that the
// compiler does not know: constant offsets beyond 32 KiB made it address
// something else.
template <int kSize>
struct BatchTable {
  static constexpr size_t kCapacity = kSize - 8;  // bytes

  uint16_t shape_count = 0;
  uint16_t entry_count = 0;
  uint32_t entries_end = kCapacity;
  alignas(8) unsigned char bytes[kCapacity];

  static constexpr bool Fits(size_t shapes, size_t entries) {
    return shapes * sizeof(BatchShape) + entries * sizeof(BatchEntry) <=
           kCapacity;
  }

  // The place of the next; it fits.
  BatchShape& AddShape() {
    return *reinterpret_cast<BatchShape*>(bytes +
                                          shape_count++ * sizeof(BatchShape));
  }
  BatchEntry& AddEntry() {
    return *reinterpret_cast<BatchEntry*>(bytes + kCapacity -
                                          ++entry_count * sizeof(BatchEntry));
  }

  // What `other`, which fits, holds.
  template <int kOtherSize>
  void CopyFrom(const BatchTable<kOtherSize>& other) {
    shape_count = other.shape_count;
    entry_count = other.entry_count;
    std::memcpy(bytes, other.bytes, shape_count * sizeof(BatchShape));
    const size_t entries = entry_count * sizeof(BatchEntry);
    std::memcpy(bytes + kCapacity - entries,
                other.bytes + other.kCapacity - entries, entries);
  }

  GEMMD_HOST_DEVICE const BatchShape& shape(int i) const {
    return reinterpret_cast<const BatchShape*>(bytes)[i];
  }
  GEMMD_HOST_DEVICE const BatchEntry& entry(uint32_t i) const {
    return *reinterpret_cast<const BatchEntry*>(
        bytes + (entries_end - (i + 1) * sizeof(BatchEntry)));
  }

  // The shape that block `tile` works on.
  GEMMD_HOST_DEVICE const BatchShape& FindShape(uint32_t tile) const {
    int low = 0;
    int high = shape_count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (shape(middle).first_tile <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return shape(low);
  }

  // The operands of the `index`-th product of a shape.
  GEMMD_HOST_DEVICE BatchEntry Product(const BatchShape& s,
                                       uint32_t index) const {
    if (!s.strided) return entry(s.first_entry + index);
    const BatchEntry& first = entry(s.first_entry);
    const BatchEntry& step = entry(s.first_entry + 1);
    return {first.a + index * step.a, first.b + index * step.b,
            first.c + index * step.c};
  }
};

// Kernel parameters may take 32764 bytes (CUDA >= 12.1, sm_70 and newer). A
// small table is cheaper to launch with.
using SmallBatchTable = BatchTable<1024>;
using LargeBatchTable = BatchTable<32760>;

}  // namespace gemmd
