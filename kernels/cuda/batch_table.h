// The products of one launch as small_tiles passes them to the device, by
// value: each distinct shape once, then three pointers a product. So a launch
// takes 1361 products of one shape, or 314 of as many shapes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

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
  uint32_t first_tile;     // the number of its first block
  uint32_t tiles;          // blocks, of one product
  uint32_t tiles_n;        // of these along n
  uint32_t first_product;  // in the table
  bool vector_a;           // the first element and all rows are 16-byte aligned
  bool vector_b;
};

struct BatchPointers {
  const float* a;
  const float* b;
  float* c;
};

// A kernel's parameter: pass it as `const __grid_constant__`.
template <int kSize>
struct BatchTable {
  static constexpr size_t kCapacity = kSize - 8;  // bytes

  int32_t shape_count;
  int32_t product_count;
  alignas(8) unsigned char bytes[kCapacity];  // the shapes, then the pointers

  static constexpr bool Fits(size_t shapes, size_t products) {
    return shapes * sizeof(BatchShape) + products * sizeof(BatchPointers) <=
           kCapacity;
  }

  void Fill(std::span<const BatchShape> shapes,
            std::span<const BatchPointers> products) {
    shape_count = static_cast<int32_t>(shapes.size());
    product_count = static_cast<int32_t>(products.size());
    std::memcpy(bytes, shapes.data(), shapes.size_bytes());
    std::memcpy(bytes + shapes.size_bytes(), products.data(),
                products.size_bytes());
  }

#if defined(__CUDACC__)
  __device__ const BatchShape* shapes() const {
    return reinterpret_cast<const BatchShape*>(bytes);
  }
  __device__ const BatchPointers* products() const {
    return reinterpret_cast<const BatchPointers*>(shapes() + shape_count);
  }

  // The shape that block `tile` works on.
  __device__ const BatchShape& FindShape(uint32_t tile) const {
    int low = 0;
    int high = shape_count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (shapes()[middle].first_tile <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return shapes()[low];
  }
#endif
};

// Kernel parameters may take 32764 bytes (CUDA >= 12.1, sm_70 and newer). A
// small table is cheaper to launch with.
using SmallBatchTable = BatchTable<1024>;
using LargeBatchTable = BatchTable<32760>;

}  // namespace gemmd
