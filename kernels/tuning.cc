#include "kernels/tuning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::infinity();

// The first steps of the ladder are there to be read: a later one is always
// faster, and they would take most of the time.
constexpr std::array<absl::string_view, 2> kNotMeasured = {"naive",
                                                           "block_tiled"};

// The line of a class, m and n: for each k a time of each kernel.
absl::Status MeasureLine(const std::vector<const SgemmKernel*>& kernels,
                         SelectionClass c, int64_t m, int64_t n,
                         const std::vector<int64_t>& ks, TuningDevice& device,
                         const TuningProgress& progress,
                         std::vector<float>& us) {
  std::vector<float> behind(kernels.size(), 1);  // at the k before
  std::vector<bool> dropped(kernels.size(), false);
  for (const int64_t k : ks) {
    const SgemmArgs args = ArgsOf(c, m, n, k);
    const size_t first = us.size();
    float best = kUnknown;
    for (size_t i = 0; i < kernels.size(); ++i) {
      us.push_back(kUnknown);
      if (dropped[i]) continue;
      const auto time = MeasureForTable(*kernels[i], args, device, progress);
      if (!time.ok()) return time.status();
      us.back() = *time;
      best = std::min(best, *time);
    }
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (std::isinf(us[first + i])) continue;
      const float now = us[first + i] / best;
      dropped[i] = behind[i] > kFarBehind && now >= behind[i] &&
                   us[first + i] > kWorthDroppingUs;
      behind[i] = now;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<float> MeasureForTable(const SgemmKernel& kernel,
                                      const SgemmArgs& args,
                                      TuningDevice& device,
                                      const TuningProgress& progress) {
  const auto us = device.Microseconds(kernel, args, ProductsOf(args));
  if (us.ok()) return static_cast<float>(*us);
  if (absl::IsDataLoss(us.status())) {
    const GemmShape& s = args.shape;
    progress(0, 0,
             absl::StrCat(kernel.info().name, " at ", s.m, " x ", s.n, " x ",
                          s.k, ": ", us.status().message()));
    return kUnknown;
  }
  if (absl::IsFailedPrecondition(us.status()) ||
      absl::IsResourceExhausted(us.status())) {
    return kUnknown;
  }
  return us.status();
}

SelectionGrid DefaultSelectionGrid() {
  return {.m = {1, 16, 64, 192, 448, 1008, 2544, 8176},
          .n = {16, 64, 192, 448, 1008, 2544, 8176},
          .k = {16, 80, 272, 1040, 4112}};
}

int ProductsOf(const SgemmArgs& args) {
  constexpr double kSmallFlops = 5e8;  // 10 us on an H200
  return args.shape.flops() < kSmallFlops ? 4 : 1;
}

SgemmArgs ArgsOf(SelectionClass c, int64_t m, int64_t n, int64_t k) {
  const GemmShape s = {m, n, k, c.transpose_a, c.transpose_b};
  const auto ld = [&](int64_t cols) {
    const int64_t whole = (cols + 3) / 4 * 4;
    return c.aligned ? whole : whole + 1;
  };
  return {.shape = s,
          .lda = ld(StoredColsA(s)),
          .ldb = ld(StoredColsB(s)),
          .ldc = ld(n)};
}

absl::StatusOr<SelectionTable> Tune(const KernelRegistry& registry,
                                    TuningDevice& device,
                                    const SelectionStamp& stamp,
                                    const SelectionGrid& grid,
                                    const TuningProgress& progress) {
  std::vector<const SgemmKernel*> kernels;
  std::vector<std::string> names;
  for (const KernelEntry& entry : registry.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kDevice ||
        std::ranges::count(kNotMeasured, entry.info.name) > 0) {
      continue;
    }
    kernels.push_back(entry.kernel.get());
    names.push_back(entry.info.name);
  }
  if (kernels.empty()) {
    return absl::FailedPreconditionError("no kernel can run on the device");
  }
  const int lines =
      static_cast<int>(SelectionClass::kCount * grid.m.size() * grid.n.size());
  int done = 0;
  std::vector<float> us;
  for (int index = 0; index < SelectionClass::kCount; ++index) {
    const SelectionClass c = SelectionClass::OfIndex(index);
    for (const int64_t m : grid.m) {
      for (const int64_t n : grid.n) {
        absl::Status status =
            MeasureLine(kernels, c, m, n, grid.k, device, progress, us);
        if (!status.ok()) return status;
        progress(++done, lines, absl::StrCat(c.Name(), " ", m, " x ", n));
      }
    }
  }
  return SelectionTable(stamp, grid, std::move(names), std::move(us));
}

}  // namespace gemmd
