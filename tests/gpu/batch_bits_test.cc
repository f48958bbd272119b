// I6 on a device: over 1000 random batches, each product has the bits that it
// has alone, whatever shares its launch.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_status.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

constexpr int kBatches = 1000;
constexpr int64_t kOperandFloats = int64_t{8} << 20;
constexpr int64_t kResultFloats = int64_t{2} << 20;

struct CudaFree {
  void operator()(void* p) const { cudaFree(p); }
};
template <typename T>
std::unique_ptr<T, CudaFree> Allocate(size_t count) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, count * sizeof(T)), cudaSuccess);
  return std::unique_ptr<T, CudaFree>(static_cast<T*>(p));
}

class BatchBitsTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (kernel_ == nullptr || IsSkipped()) return;
    operands_ = Allocate<float>(kOperandFloats);
    results_ = Allocate<float>(kResultFloats);
    cublas_workspace_ = Allocate<char>(kCublasWorkspaceBytes);
    std::vector<float> numbers(kOperandFloats);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& x : numbers) x = uniform(random_);
    ASSERT_EQ(
        cudaMemcpy(operands_.get(), numbers.data(),
                   numbers.size() * sizeof(float), cudaMemcpyHostToDevice),
        cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    const auto library = CublasLibrary::Get();
    if (!library.ok()) return;
    auto handle = (*library)->CreateHandle(stream_, cublas_workspace_.get(),
                                           kCublasWorkspaceBytes);
    ASSERT_TRUE(handle.ok()) << handle.status();
    cublas_ = *std::move(handle);
  }
  void TearDown() override {
    cublas_ = {};
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // A product of `shape` on operands anywhere, C after all others.
  SgemmArgs MakeProduct(const GemmShape& shape) {
    SgemmArgs args;
    args.shape = shape;
    args.alpha = RandomBelow(2) == 0 ? 1.0f : 1.7f;
    args.beta = RandomBelow(4) == 0 ? -1.0f : 0.0f;
    args.lda = StoredColsA(shape) + RandomBelow(5);
    args.ldb = StoredColsB(shape) + RandomBelow(5);
    args.ldc = shape.n + RandomBelow(3);
    args.a = Somewhere(StoredRowsA(shape) * args.lda);
    args.b = Somewhere(StoredRowsB(shape) * args.ldb);
    args.c = TakeResult(shape.m * args.ldc);
    return args;
  }
  const float* Somewhere(int64_t floats) {
    return operands_.get() + RandomBelow(kOperandFloats - floats);
  }
  float* TakeResult(int64_t floats) {
    float* const result = results_.get() + used_;
    used_ += floats + RandomBelow(4);
    EXPECT_LE(used_, kResultFloats);
    return result;
  }
  int64_t Upto(int64_t n) { return 1 + RandomBelow(n); }
  GemmShape SomeShape() {
    const int64_t most = RandomBelow(4) == 0 ? 300 : 80;
    return {Upto(most), Upto(most), Upto(3 * most), RandomBelow(2) == 1,
            RandomBelow(2) == 1};
  }

  // Equal shapes from separate buffers.
  std::vector<SgemmArgs> EqualBatch() {
    const GemmShape shape = SomeShape();
    std::vector<SgemmArgs> batch;
    for (int64_t i = Upto(12); i > 0; --i) {
      batch.push_back(MakeProduct(shape));
    }
    return batch;
  }
  // Any mixture.
  std::vector<SgemmArgs> GroupedBatch() {
    std::vector<SgemmArgs> batch;
    for (int64_t i = Upto(12); i > 0; --i) {
      batch.push_back(MakeProduct(SomeShape()));
    }
    return batch;
  }
  // Products of few rows on one B, among a stranger or two. `whole`, if asked
  // for, is the product of all their rows, which follow each other there.
  std::vector<SgemmArgs> StackedBatch(SgemmArgs* whole) {
    GemmShape shape = {0, Upto(500), Upto(1500), RandomBelow(2) == 1,
                       RandomBelow(2) == 1};
    std::vector<int64_t> rows;
    for (int64_t i = Upto(70); i > 0; --i) {
      rows.push_back(RandomBelow(3) == 0 ? Upto(9) : 1);
      shape.m += rows.back();
    }
    *whole = MakeProduct(shape);
    std::vector<SgemmArgs> batch;
    int64_t first = 0;
    for (const int64_t m : rows) {
      SgemmArgs part = *whole;
      part.shape.m = m;
      part.a += first * (shape.transpose_a ? 1 : part.lda);
      part.c += first * part.ldc;
      first += m;
      batch.push_back(part);
    }
    if (RandomBelow(2) == 0) batch.push_back(MakeProduct(SomeShape()));
    std::ranges::shuffle(batch, random_);
    return batch;
  }

  // C of everything, as it is after these launches, one after the other.
  std::vector<float> Run(const std::vector<std::vector<SgemmArgs>>& launches) {
    // What C holds before: numbers, where beta reads them.
    EXPECT_EQ(
        cudaMemcpyAsync(results_.get(), operands_.get(), used_ * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream_),
        cudaSuccess);
    for (const auto& batch : launches) {
      const size_t bytes = kernel_->WorkspaceBytes(batch);
      if (bytes > workspace_bytes_) {
        workspace_ = Allocate<char>(bytes);
        workspace_bytes_ = bytes;
      }
      const absl::Status status =
          kernel_->Launch(batch, {.stream = stream_,
                                  .cublas = cublas_.get(),
                                  .workspace = workspace_.get(),
                                  .workspace_bytes = workspace_bytes_});
      EXPECT_TRUE(status.ok()) << status;
    }
    std::vector<float> results(used_);
    EXPECT_EQ(
        cudaMemcpyAsync(results.data(), results_.get(), used_ * sizeof(float),
                        cudaMemcpyDeviceToHost, stream_),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return results;
  }
  std::vector<float> RunEachAlone(const std::vector<SgemmArgs>& batch) {
    std::vector<std::vector<SgemmArgs>> launches;
    for (const SgemmArgs& args : batch) launches.push_back({args});
    return Run(launches);
  }
  static bool SameBits(const std::vector<float>& x,
                       const std::vector<float>& y) {
    return x.size() == y.size() &&
           std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  }

  std::unique_ptr<float, CudaFree> operands_;
  std::unique_ptr<float, CudaFree> results_;
  int64_t used_ = 0;  // of results_
  std::unique_ptr<char, CudaFree> cublas_workspace_;
  std::unique_ptr<char, CudaFree> workspace_;
  size_t workspace_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  CublasHandle cublas_;
};

TEST_P(BatchBitsTest, AThousandRandomBatchesHaveTheBitsOfSingleProducts) {
  if (!kernel_->info().batch_invariant) GTEST_SKIP() << "not batch invariant";
  for (int i = 0; i < kBatches; ++i) {
    used_ = 0;
    SgemmArgs whole;
    const std::vector<SgemmArgs> batch = i % 3 == 0   ? EqualBatch()
                                         : i % 3 == 1 ? GroupedBatch()
                                                      : StackedBatch(&whole);
    ASSERT_TRUE(SameBits(Run({batch}), RunEachAlone(batch)))
        << "batch " << i << " of " << batch.size() << ", seed " << TestSeed();
  }
}

// Stronger than I6 asks for, and what lets rows of many requests be computed as
// one product: a row has the same bits whatever rows are computed with it.
TEST_P(BatchBitsTest, ARowHasTheSameBitsWhateverRowsShareItsProduct) {
  const std::vector<std::string> kRowInvariant = {
      "naive",           "block_tiled", "conflict_free",
      "double_buffered", "small_tiles", "skinny"};
  if (std::ranges::count(kRowInvariant, GetParam()) == 0) {
    GTEST_SKIP() << "makes no such promise";
  }
  for (int i = 0; i < kBatches / 5; ++i) {
    used_ = 0;
    SgemmArgs whole;
    std::vector<SgemmArgs> parts = StackedBatch(&whole);
    std::erase_if(parts, [&](const SgemmArgs& p) { return p.b != whole.b; });
    const std::vector<float> want = Run({{whole}});
    ASSERT_TRUE(SameBits(want, Run({parts}))) << "stacked, batch " << i;
    ASSERT_TRUE(SameBits(want, RunEachAlone(parts))) << "alone, batch " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, BatchBitsTest,
                         testing::ValuesIn(KernelNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
