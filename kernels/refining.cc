#include "kernels/refining.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::infinity();
// How wrong times between shapes of the default grid often are.
constexpr double kNear = 1.15;

bool IsPowerOfTwo(int64_t x) { return std::has_single_bit(uint64_t(x)); }

int64_t Between(int64_t low, int64_t high, bool in_tiles) {
  const double middle = std::sqrt(static_cast<double>(low) * high);
  auto size = static_cast<int64_t>(std::lround(middle));
  if (in_tiles && middle > 64) {
    size = std::lround(middle / 64) * 64 - 16;
  } else if (middle > 24) {
    size = std::lround(middle / 8) * 8;
  }
  if (size > 4 && IsPowerOfTwo(size)) size -= size / 8;
  return size;
}

std::vector<int64_t> Finer(const std::vector<int64_t>& sizes, bool in_tiles) {
  std::vector<int64_t> finer = {sizes.front()};
  for (size_t i = 1; i < sizes.size(); ++i) {
    const int64_t size = Between(sizes[i - 1], sizes[i], in_tiles);
    if (size > sizes[i - 1] && size < sizes[i]) finer.push_back(size);
    finer.push_back(sizes[i]);
  }
  return finer;
}

bool Has(const std::vector<int64_t>& sizes, int64_t size) {
  return std::ranges::binary_search(sizes, size);
}

// Which kernels compete for being the fastest.
std::vector<bool> Contenders(const std::vector<const SgemmKernel*>& kernels,
                             std::span<const double> us, double near) {
  std::vector<bool> contenders(kernels.size());
  for (const Precision floor : {Precision::kFp32, Precision::kFp32Emulated}) {
    const auto may = [&](size_t i) {
      return kernels[i] != nullptr && kernels[i]->info().precision <= floor;
    };
    double best = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < us.size(); ++i) {
      if (may(i)) best = std::min(best, us[i]);
    }
    std::vector<size_t> close;
    for (size_t i = 0; i < us.size(); ++i) {
      if (may(i) && us[i] <= near * best && std::isfinite(us[i])) {
        close.push_back(i);
      }
    }
    if (close.size() < 2) continue;
    for (const size_t i : close) contenders[i] = true;
  }
  return contenders;
}

class Refiner {
 public:
  Refiner(const KernelRegistry& registry, TuningDevice& device,
          const SelectionTable& coarse, double near,
          const TuningProgress& progress)
      : device_(device), coarse_(coarse), near_(near), progress_(progress) {
    for (const std::string& name : coarse.kernels()) {
      const auto kernel = registry.Find(name);
      kernels_.push_back(kernel.ok() ? *kernel : nullptr);
    }
  }

  absl::Status Point(SelectionClass c, int64_t m, int64_t n, int64_t k) {
    const SgemmArgs args = ArgsOf(c, m, n, k);
    const SelectionGrid& grid = coarse_.grid();
    if (Has(grid.m, m) && Has(grid.n, n) && Has(grid.k, k)) {
      const auto measured = coarse_.Measured(c, m, n, k);
      us_.insert(us_.end(), measured.begin(), measured.end());
      return absl::OkStatus();
    }
    std::vector<double> us(kernels_.size());
    coarse_.Predict(args, us);
    const std::vector<bool> contenders = Contenders(kernels_, us, near_);
    for (size_t i = 0; i < us.size(); ++i) {
      if (!contenders[i]) continue;
      const auto time = MeasureForTable(*kernels_[i], args, device_, progress_);
      if (!time.ok()) return time.status();
      us[i] = *time;
    }
    const double best = std::ranges::min(us);
    for (const double time : us) {
      us_.push_back(time <= kFarBehind * best ? static_cast<float>(time)
                                              : kUnknown);
    }
    return absl::OkStatus();
  }

  std::vector<float> TakeTimes() { return std::move(us_); }

 private:
  TuningDevice& device_;
  const SelectionTable& coarse_;
  const double near_;
  const TuningProgress& progress_;
  std::vector<const SgemmKernel*> kernels_;  // null: not here
  std::vector<float> us_;
};

}  // namespace

SelectionGrid FinerGrid(const SelectionGrid& grid) {
  return {.m = Finer(grid.m, true),
          .n = Finer(grid.n, true),
          .k = Finer(grid.k, false)};
}

absl::StatusOr<SelectionTable> Refine(const KernelRegistry& registry,
                                      TuningDevice& device,
                                      const SelectionTable& coarse, double near,
                                      const TuningProgress& progress) {
  const SelectionGrid grid = FinerGrid(coarse.grid());
  Refiner refiner(registry, device, coarse, near, progress);
  const int lines =
      static_cast<int>(SelectionClass::kCount * grid.m.size() * grid.n.size());
  int done = 0;
  for (int index = 0; index < SelectionClass::kCount; ++index) {
    const SelectionClass c = SelectionClass::OfIndex(index);
    for (const int64_t m : grid.m) {
      for (const int64_t n : grid.n) {
        for (const int64_t k : grid.k) {
          absl::Status status = refiner.Point(c, m, n, k);
          if (!status.ok()) return status;
        }
        progress(++done, lines,
                 absl::StrCat("closer, ", c.Name(), " ", m, " x ", n));
      }
    }
  }
  return SelectionTable(coarse.stamp(), grid, coarse.kernels(),
                        refiner.TakeTimes());
}

absl::StatusOr<SelectionTable> TuneFinely(const KernelRegistry& registry,
                                          TuningDevice& device,
                                          const SelectionStamp& stamp,
                                          const TuningProgress& progress) {
  auto coarse = Tune(registry, device, stamp, DefaultSelectionGrid(), progress);
  if (!coarse.ok()) return coarse;
  return Refine(registry, device, *coarse, kNear, progress);
}

}  // namespace gemmd
