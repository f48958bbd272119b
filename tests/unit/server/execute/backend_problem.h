// A product in a backend's staging memory, with what its answer must be.

#pragma once

#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "server/execute/backend.h"
#include "server/schedule/task.h"

namespace gemmd {

// Random operands in the pool, the output poisoned with NaN where the product
// must not read it.
class BackendProblem {
 public:
  BackendProblem(StagingPool& pool, const SgemmKernel& kernel, GemmShape shape,
                 float alpha, float beta, std::mt19937& random) {
    spec_.shape = shape;
    spec_.alpha = alpha;
    spec_.beta = beta;
    spec_.kernel = &kernel;
    spec_.arrival = MonotonicClock::now();
    spec_.a.leading_dimension = StoredColsA(shape) + 3;
    spec_.b.leading_dimension = StoredColsB(shape) + 1;
    const size_t a_bytes = StoredRowsA(shape) * spec_.a.leading_dimension * 4;
    const size_t b_bytes = StoredRowsB(shape) * spec_.b.leading_dimension * 4;
    spec_.b.offset = (a_bytes + 255) / 256 * 256;
    spec_.input = *pool.Allocate(spec_.b.offset + b_bytes);
    spec_.output = *pool.Allocate(shape.m * shape.n * 4);
    std::uniform_real_distribution<float> values(-1, 1);
    const auto fill = [&](float* x, size_t count) {
      for (size_t i = 0; i < count; ++i) x[i] = values(random);
    };
    fill(spec_.input.floats(), spec_.input.size() / 4);
    fill(spec_.output.floats(), spec_.output.size() / 4);
    if (beta == 0) {
      for (size_t i = 0; i < spec_.output.size() / 4; ++i) {
        spec_.output.floats()[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    ComputeWanted();
  }

  TaskSpec& spec() { return spec_; }

  // The task; the problem keeps the wanted answer alone.
  std::shared_ptr<Task> MakeTask(Task::Done done) {
    return std::make_shared<Task>(std::move(spec_), std::move(done));
  }

  // The largest |got - wanted| in units of the contract's bound for FP32; not
  // a number where `got` holds one. At most 1 is right.
  double Error(const StagingBuffer& got) const {
    if (got.size() != wanted_.size() * 4) return INFINITY;
    double worst = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const double error = std::abs(got.floats()[i] - wanted_[i]) / bound_[i];
      if (!(error <= worst)) worst = error;  // NaN too
    }
    return worst;
  }

 private:
  void ComputeWanted() {
    const GemmShape& s = spec_.shape;
    const auto at = [](const float* x, int64_t ld, bool transpose, int64_t i,
                       int64_t j) -> double {
      return transpose ? x[j * ld + i] : x[i * ld + j];
    };
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t p = 0; p < s.k; ++p) {
          const double product =
              at(spec_.input.floats(spec_.a.offset), spec_.a.leading_dimension,
                 s.transpose_a, i, p) *
              at(spec_.input.floats(spec_.b.offset), spec_.b.leading_dimension,
                 s.transpose_b, p, j);
          sum += product;
          magnitude += std::abs(product);
        }
        double wanted = spec_.alpha * sum;
        magnitude *= std::abs(spec_.alpha);
        if (spec_.beta != 0) {
          const double c = spec_.output.floats()[i * s.n + j];
          wanted += spec_.beta * c;
          magnitude += std::abs(spec_.beta * c);
        }
        wanted_.push_back(wanted);
        bound_.push_back((s.k + 4) * std::ldexp(magnitude, -24) +
                         std::numeric_limits<float>::min());
      }
    }
  }

  TaskSpec spec_;
  std::vector<double> wanted_;
  std::vector<double> bound_;
};

// Runs a batch to its end.
inline BatchReport RunToEnd(Device& device, Batch batch) {
  BatchReport report;
  std::latch done(1);
  device.Execute(std::move(batch), [&](const BatchReport& r) {
    report = r;
    done.count_down();
  });
  done.wait();
  return report;
}

}  // namespace gemmd
