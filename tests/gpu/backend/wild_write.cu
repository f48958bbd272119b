#include "tests/gpu/backend/wild_write.h"

namespace gemmd {
namespace {

__global__ void WildWriteKernel(int* nowhere) { *nowhere = 1; }

}  // namespace

void WildWrite(cudaStream_t stream) {
  WildWriteKernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(0x10));
}

}  // namespace gemmd
