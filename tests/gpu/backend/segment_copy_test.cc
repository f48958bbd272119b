#include "server/execute/cuda/segment_copy.h"

#include <cstring>

#include "server/execute/cuda/handles.h"
#include "tests/gpu/backend/cuda_fixture.h"

namespace gemmd {
namespace {

class SegmentCopyTest : public CudaBackendFixture {};

// Random segments there and back, with a guard between them that must not
// change: sizes around every boundary of the kernel, and more segments than
// one launch takes.
TEST_F(SegmentCopyTest, BothWaysCopyEverySegmentAndNothingElse) {
  constexpr size_t kGuard = 256;
  std::vector<size_t> sizes = {0,     4,     8,     12,    16,   20,
                               16380, 16384, 16388, 32768, 33000};
  for (int i = 0; i < 200; ++i) sizes.push_back(random_() % 5000 * 4);
  size_t total = 0;
  std::vector<size_t> offsets;
  for (const size_t size : sizes) {
    offsets.push_back(total);
    total += (size + kGuard - 1) / kGuard * kGuard + kGuard;
  }
  const CudaStream stream = *MakeStream();
  const DeviceMemory middle = *MakeDeviceMemory(total);
  const StagingBuffer from = *staging().Allocate(total);
  const StagingBuffer to = *staging().Allocate(total);
  for (const bool by_kernel : {false, true}) {
    for (size_t i = 0; i < total; ++i) from.data()[i] = std::byte(random_());
    std::memset(to.data(), 0xee, total);
    std::vector<CopySegment> in;
    std::vector<CopySegment> out;
    for (size_t i = 0; i < sizes.size(); ++i) {
      in.push_back(
          {middle.get() + offsets[i], from.data() + offsets[i], sizes[i]});
      out.push_back(
          {to.data() + offsets[i], middle.get() + offsets[i], sizes[i]});
    }
    if (by_kernel) {
      ASSERT_TRUE(CopySegmentsByKernel(in, stream.get()).ok());
      ASSERT_TRUE(CopySegmentsByKernel(out, stream.get()).ok());
    } else {
      ASSERT_TRUE(
          CopySegmentsByEngine(in, cudaMemcpyHostToDevice, stream.get()).ok());
      ASSERT_TRUE(
          CopySegmentsByEngine(out, cudaMemcpyDeviceToHost, stream.get()).ok());
    }
    ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_EQ(std::memcmp(to.data() + offsets[i], from.data() + offsets[i],
                            sizes[i]),
                0)
          << "segment of " << sizes[i] << " bytes";
      const size_t end = i + 1 < sizes.size() ? offsets[i + 1] : total;
      for (size_t at = offsets[i] + sizes[i]; at < end; ++at) {
        ASSERT_EQ(to.data()[at], std::byte(0xee))
            << "written past a segment of " << sizes[i] << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace gemmd
