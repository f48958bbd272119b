// For every backend: a product whose operands and output lie in every mixture
// of staged, resident and shared memory is right, and the same to the bit.

#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "server/execute/backend.h"
#include "server/store/stored_matrix.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {

enum class Where { kStaged, kResident, kShared };

// A packed matrix of a test.
struct TestMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  size_t bytes() const { return values.size() * sizeof(float); }
};

// What is multiplied, and what must come out.
struct TestProduct {
  GemmShape shape;
  float alpha;
  float beta;
  TestMatrix a, b, c;
  std::vector<double> wanted, bound;

  TestProduct(GemmShape s, float alpha, float beta, std::mt19937& random)
      : shape(s), alpha(alpha), beta(beta) {
    std::uniform_real_distribution<float> values(-1, 1);
    const auto fill = [&](TestMatrix& x, int64_t rows, int64_t cols) {
      x.rows = rows;
      x.cols = cols;
      x.values.resize(rows * cols);
      for (float& value : x.values) value = values(random);
    };
    fill(a, StoredRowsA(s), StoredColsA(s));
    fill(b, StoredRowsB(s), StoredColsB(s));
    fill(c, s.m, s.n);
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t p = 0; p < s.k; ++p) {
          const double product =
              double{a.values[s.transpose_a ? p * s.m + i : i * s.k + p]} *
              b.values[s.transpose_b ? j * s.k + p : p * s.n + j];
          sum += product;
          magnitude += std::abs(product);
        }
        const double added = beta == 0 ? 0 : beta * c.values[i * s.n + j];
        wanted.push_back(alpha * sum + added);
        bound.push_back(
            (s.k + 4) *
                std::ldexp(std::abs(alpha) * magnitude + std::abs(added), -24) +
            std::numeric_limits<float>::min());
      }
    }
  }

  // As BackendProblem::Error.
  double Error(const std::vector<float>& got) const {
    if (got.size() != wanted.size()) return INFINITY;
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double error = std::abs(got[i] - wanted[i]) / bound[i];
      if (!(error <= worst)) worst = error;  // NaN too
    }
    return worst;
  }
};

// Pages of a client's, each matrix in them misaligned and with padding between
// its rows that nobody may touch.
class SharedPages {
 public:
  static constexpr uint32_t kPadding = 0x7fc0beef;  // a NaN
  static constexpr size_t kBytes = size_t{4} << 20;

  SharedPages()
      : pages_(static_cast<std::byte*>(
                   mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
               [](std::byte* pages) { munmap(pages, kBytes); }) {}

  // Room for a matrix, with `values` in it unless they are null.
  HostSlice Place(int64_t rows, int64_t cols, const float* values) {
    const int64_t ld = LeadingDimension(cols);
    auto* const words = reinterpret_cast<uint32_t*>(pages_.get() + next_);
    std::fill(words, words + rows * ld, kPadding);
    for (int64_t i = 0; values != nullptr && i < rows; ++i) {
      std::memcpy(words + i * ld, values + i * cols, cols * sizeof(float));
    }
    HostSlice slice = {pages_, pages_.get() + next_};
    next_ += rows * ld * sizeof(float) + 36;
    EXPECT_LE(next_, kBytes);
    return slice;
  }
  static int64_t LeadingDimension(int64_t cols) { return cols + 5; }

  // The packed numbers of a matrix there; fails where the padding has changed.
  static std::vector<float> Read(const HostSlice& slice, int64_t rows,
                                 int64_t cols) {
    const int64_t ld = LeadingDimension(cols);
    const auto* const words = reinterpret_cast<const uint32_t*>(slice.data);
    std::vector<float> values(rows * cols);
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(values.data() + i * cols, words + i * ld,
                  cols * sizeof(float));
      for (int64_t j = cols; j < ld; ++j) {
        EXPECT_EQ(words[i * ld + j], kPadding) << "padding of row " << i;
      }
    }
    return values;
  }

  std::byte* data() const { return pages_.get(); }
  void Clear() { next_ = 4; }

 private:
  std::shared_ptr<std::byte> pages_;
  size_t next_ = 4;
};

// Copies there and back, as an upload and a download do, and waits.
class ResidentIo {
 public:
  ResidentIo(Backend& backend, int device)
      : backend_(backend), device_(*backend.devices()[device]) {}

  std::shared_ptr<StoredMatrix> Put(int64_t rows, int64_t cols,
                                    const float* values) {
    auto memory =
        device_.AllocateResident(std::max<size_t>(1, rows * cols * 4));
    EXPECT_TRUE(memory.ok()) << memory.status();
    StagingBuffer from = *backend_.staging().Allocate(rows * cols * 4);
    for (int64_t i = 0; i < rows * cols; ++i) {
      from.floats()[i] = values != nullptr
                             ? values[i]
                             : std::numeric_limits<float>::quiet_NaN();
    }
    Wait([&](Device::CopyDone done) {
      device_.CopyIn(**memory, 0, std::move(from), std::move(done));
    });
    return std::make_shared<StoredMatrix>(rows, cols, *std::move(memory));
  }
  std::shared_ptr<StoredMatrix> Put(const TestMatrix& x) {
    return Put(x.rows, x.cols, x.values.data());
  }

  std::vector<float> Get(const StoredMatrix& matrix) {
    const StagingBuffer buffer = Wait([&](Device::CopyDone done) {
      device_.CopyOut(*matrix.memory(device_.info().index), 0,
                      *backend_.staging().Allocate(matrix.bytes()),
                      std::move(done));
    });
    return {buffer.floats(), buffer.floats() + buffer.size() / 4};
  }

 private:
  static StagingBuffer Wait(
      const std::function<void(Device::CopyDone)>& start) {
    StagingBuffer result;
    std::latch done(1);
    start([&](const absl::Status& status, StagingBuffer buffer) {
      EXPECT_TRUE(status.ok()) << status;
      result = std::move(buffer);
      done.count_down();
    });
    done.wait();
    return result;
  }

  Backend& backend_;
  Device& device_;
};

struct Mixture {
  Where a, b, c, output;
  bool in_place = false;  // C and the output are one slice
};

// All of them; C's place counts only where it is read.
inline std::vector<Mixture> Mixtures(bool reads_c) {
  constexpr Where kAll[] = {Where::kStaged, Where::kResident, Where::kShared};
  std::vector<Mixture> mixtures;
  for (const Where a : kAll) {
    for (const Where b : kAll) {
      for (const Where output : kAll) {
        for (const Where c : kAll) {
          if (!reads_c && c != Where::kStaged) continue;
          mixtures.push_back({a, b, c, output});
          if (c == Where::kShared && output == Where::kShared) {
            mixtures.push_back({a, b, c, output, true});
          }
        }
      }
    }
  }
  return mixtures;
}

// Runs one, alone in its batch, and returns the product, packed.
class MixtureRun {
 public:
  using Run = std::function<BatchReport(Batch)>;

  MixtureRun(Backend& backend, SharedPages& pages, const SgemmKernel& kernel,
             Run run)
      : backend_(backend),
        pages_(pages),
        kernel_(kernel),
        run_(std::move(run)),
        io_(backend, 0) {}

  std::vector<float> operator()(const TestProduct& product,
                                const Mixture& mixture) {
    pages_.Clear();
    TaskSpec spec;
    spec.shape = product.shape;
    spec.alpha = product.alpha;
    spec.beta = product.beta;
    spec.kernel = &kernel_;
    spec.arrival = MonotonicClock::now();
    const bool reads_c = product.beta != 0;
    const bool c_in_input = reads_c && mixture.c == Where::kStaged &&
                            mixture.output != Where::kStaged;
    std::vector<std::pair<size_t, const TestMatrix*>> staged;
    size_t input_bytes = 0;
    const auto place = [&](TaskOperand& operand, Where where,
                           const TestMatrix& x) {
      operand.leading_dimension = x.cols;
      if (where == Where::kResident) operand.resident = io_.Put(x);
      if (where == Where::kShared) {
        operand.shared = pages_.Place(x.rows, x.cols, x.values.data());
        operand.leading_dimension = SharedPages::LeadingDimension(x.cols);
      }
      if (where == Where::kStaged) {
        operand.offset = input_bytes;
        staged.emplace_back(input_bytes, &x);
        input_bytes += (x.bytes() + 255) / 256 * 256;
      }
    };
    place(spec.a, mixture.a, product.a);
    place(spec.b, mixture.b, product.b);
    if (reads_c && (mixture.c != Where::kStaged || c_in_input)) {
      place(spec.c, mixture.c, product.c);
    }
    spec.input = *backend_.staging().Allocate(input_bytes);
    for (const auto& [offset, x] : staged) {
      std::memcpy(spec.input.data() + offset, x->values.data(), x->bytes());
    }
    PlaceOutput(product, mixture, spec);
    return RunAndRead(std::move(spec));
  }

 private:
  void PlaceOutput(const TestProduct& product, const Mixture& mixture,
                   TaskSpec& spec) {
    const GemmShape& s = product.shape;
    if (mixture.output == Where::kResident) {
      spec.output_resident = io_.Put(s.m, s.n, nullptr);
    } else if (mixture.output == Where::kShared) {
      spec.output_shared =
          mixture.in_place ? spec.c.shared : pages_.Place(s.m, s.n, nullptr);
      spec.output_leading_dimension = SharedPages::LeadingDimension(s.n);
    } else {
      spec.output = *backend_.staging().Allocate(s.m * s.n * 4);
      const bool holds_c = product.beta != 0 && mixture.c == Where::kStaged;
      for (int64_t i = 0; i < s.m * s.n; ++i) {
        spec.output.floats()[i] = holds_c
                                      ? product.c.values[i]
                                      : std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  std::vector<float> RunAndRead(TaskSpec spec) {
    const GemmShape shape = spec.shape;
    const auto resident = spec.output_resident;
    const HostSlice shared = spec.output_shared;
    Ending ending;
    Batch batch;
    batch.kernel = &kernel_;
    batch.tasks.push_back(
        std::make_shared<Task>(std::move(spec), ending.For()));
    const BatchReport report = run_(std::move(batch));
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_TRUE(report.launch_status.ok()) << report.launch_status;
    EXPECT_TRUE(ending.result.status.ok()) << ending.result.status;
    if (resident != nullptr) return io_.Get(*resident);
    if (shared) return SharedPages::Read(shared, shape.m, shape.n);
    const StagingBuffer& output = ending.result.output;
    return {output.floats(), output.floats() + output.size() / 4};
  }

  Backend& backend_;
  SharedPages& pages_;
  const SgemmKernel& kernel_;
  const Run run_;
  ResidentIo io_;
};

// Every mixture of `shapes` with and without C: right, and equal to the bit.
inline void ExpectMixturesAgree(Backend& backend, SharedPages& pages,
                                const SgemmKernel& kernel,
                                const std::vector<GemmShape>& shapes,
                                std::mt19937& random,
                                const MixtureRun::Run& run) {
  MixtureRun mixture_run(backend, pages, kernel, run);
  for (const GemmShape& shape : shapes) {
    for (const float beta : {0.0f, -0.5f}) {
      const TestProduct product(shape, 1.5f, beta, random);
      std::vector<float> first;
      for (const Mixture& m : Mixtures(beta != 0)) {
        SCOPED_TRACE(::testing::Message()
                     << kernel.info().name << ' ' << shape.m << " x " << shape.n
                     << " x " << shape.k << " beta " << beta
                     << ", a b c output " << static_cast<int>(m.a)
                     << static_cast<int>(m.b) << static_cast<int>(m.c)
                     << static_cast<int>(m.output)
                     << (m.in_place ? " in place" : ""));
        const std::vector<float> got = mixture_run(product, m);
        ASSERT_LE(product.Error(got), 1);
        if (first.empty()) first = got;
        ASSERT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0)
            << "other bits than with everything staged";
      }
    }
  }
}

}  // namespace gemmd
