#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/reference.h"
#include "tests/bench/kernel_bench/oracle.h"

namespace gemmd {
namespace {

constexpr int kTile = 16;

// op(A)(i, k) is a[i * row + k * col], op(B)(k, j) likewise. One thread an
// element, its sum and the sum of magnitudes in float64.
struct View {
  const float* data;
  int64_t row;
  int64_t col;
};

__global__ void Product(View a, View b, int64_t m, int64_t n, int64_t k,
                        double* value, double* magnitude) {
  __shared__ float a_tile[kTile][kTile + 1];
  __shared__ float b_tile[kTile][kTile + 1];
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int64_t tiles_n = (n + kTile - 1) / kTile;
  const int64_t i = blockIdx.x / tiles_n * kTile + y;
  const int64_t j = blockIdx.x % tiles_n * kTile + x;
  double sum = 0;
  double sum_of_magnitudes = 0;
  for (int64_t k0 = 0; k0 < k; k0 += kTile) {
    a_tile[y][x] =
        i < m && k0 + x < k ? a.data[i * a.row + (k0 + x) * a.col] : 0.0f;
    b_tile[y][x] =
        j < n && k0 + y < k ? b.data[(k0 + y) * b.row + j * b.col] : 0.0f;
    __syncthreads();
    for (int kk = 0; kk < kTile; ++kk) {
      const double product = static_cast<double>(a_tile[y][kk]) * b_tile[kk][x];
      sum += product;
      sum_of_magnitudes += fabs(product);
    }
    __syncthreads();
  }
  if (i < m && j < n) {
    value[i * n + j] = sum;
    magnitude[i * n + j] = sum_of_magnitudes;
  }
}

// Of one thread block's share of the elements.
struct Partial {
  double error_squared;
  double value_squared;
  double worst_of_bound;
};

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;

__global__ void Differences(const float* c, const double* value,
                            const double* magnitude, int64_t size,
                            double relative, double absolute, Partial* out) {
  __shared__ Partial partials[kThreads];
  Partial mine = {};
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += int64_t{kBlocks} * kThreads) {
    const double error = fabs(c[i] - value[i]);
    const double share = error / (relative * magnitude[i] + absolute);
    mine.error_squared += error * error;
    mine.value_squared += value[i] * value[i];
    // NaN is no less than anything: it stays.
    if (!(share <= mine.worst_of_bound)) mine.worst_of_bound = share;
  }
  partials[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads; ++i) {
    mine.error_squared += partials[i].error_squared;
    mine.value_squared += partials[i].value_squared;
    if (!(partials[i].worst_of_bound <= mine.worst_of_bound)) {
      mine.worst_of_bound = partials[i].worst_of_bound;
    }
  }
  out[blockIdx.x] = mine;
}

}  // namespace

Oracle::Oracle(std::span<const SgemmArgs> problems) : problems_(problems) {
  const GemmShape& s = problems[0].shape;
  const int64_t size = s.m * s.n;
  value_ = AllocateOnDevice<double>(size * problems.size());
  magnitude_ = AllocateOnDevice<double>(size * problems.size());
  const int64_t tiles =
      ((s.m + kTile - 1) / kTile) * ((s.n + kTile - 1) / kTile);
  for (size_t i = 0; i < problems.size(); ++i) {
    const SgemmArgs& p = problems[i];
    const View a = s.transpose_a ? View{p.a, 1, p.lda} : View{p.a, p.lda, 1};
    const View b = s.transpose_b ? View{p.b, 1, p.ldb} : View{p.b, p.ldb, 1};
    Product<<<static_cast<unsigned>(tiles), dim3(kTile, kTile)>>>(
        a, b, s.m, s.n, s.k, value_.get() + i * size,
        magnitude_.get() + i * size);
    Check(cudaGetLastError(), "Product");
  }
  Check(cudaDeviceSynchronize(), "the float64 product");
}

Errors Oracle::Compare() const {
  const GemmShape& s = problems_[0].shape;
  const int64_t size = s.m * s.n;
  const double absolute = Fp32ErrorBound(s.k, 0);
  const double relative = Fp32ErrorBound(s.k, 1) - absolute;
  const auto partials = AllocateOnDevice<Partial>(kBlocks);
  std::vector<Partial> sums(kBlocks);
  Partial total = {};
  for (size_t i = 0; i < problems_.size(); ++i) {
    Differences<<<kBlocks, kThreads>>>(problems_[i].c, value_.get() + i * size,
                                       magnitude_.get() + i * size, size,
                                       relative, absolute, partials.get());
    Check(cudaGetLastError(), "Differences");
    Check(cudaMemcpy(sums.data(), partials.get(), kBlocks * sizeof(Partial),
                     cudaMemcpyDeviceToHost),
          "the comparison");
    for (const Partial& sum : sums) {
      total.error_squared += sum.error_squared;
      total.value_squared += sum.value_squared;
      if (!(sum.worst_of_bound <= total.worst_of_bound)) {
        total.worst_of_bound = sum.worst_of_bound;
      }
    }
  }
  if (std::isnan(total.worst_of_bound)) {
    total.worst_of_bound = std::numeric_limits<double>::infinity();
  }
  return {std::sqrt(total.error_squared / total.value_squared),
          total.worst_of_bound};
}

}  // namespace gemmd
