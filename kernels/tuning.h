// Measures every kernel over a grid of shapes: what makes a SelectionTable.

#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "kernels/selection_table.h"
#include "kernels/tuning_device.h"

namespace gemmd {

// The grid that --tune measures. Its sizes are none of the powers of two, for
// which libraries have paths of their own that say little about other sizes.
SelectionGrid DefaultSelectionGrid();

// A product of that class and shape, its rows packed as far as the class lets
// them; null pointers.
SgemmArgs ArgsOf(SelectionClass c, int64_t m, int64_t n, int64_t k);

// Told of each line measured: how many of how many, and what it was; and of
// each kernel that gave a wrong result, with `done` 0.
using TuningProgress =
    std::function<void(int done, int of, absl::string_view what)>;

// How many products like `args` tuning gives a launch: a few where they are
// small, since such requests come in batches, and what they cost there is a
// launch's cost more than anything else; one where it would be all the same.
int ProductsOf(const SgemmArgs& args);

// Microseconds of a kernel for a product like `args`; infinity where it does
// not support it or errs (then `progress` is told). An error of `device` beyond
// that means that tuning cannot go on.
absl::StatusOr<float> MeasureForTable(const SgemmKernel& kernel,
                                      const SgemmArgs& args,
                                      TuningDevice& device,
                                      const TuningProgress& progress);

// Measures the kernels of the device's space over `grid`, but for the first
// steps of the ladder, which are never ahead. A kernel that does not support a
// product or errs is unknown there; so is one that at two k running took
// kFarBehind times as long as the best, and was no nearer at the second, which
// saves most of the time, unless it is over so soon that little is saved
// (libraries have paths for a long k). An error of `device` beyond that ends
// it: no table is better than half of one. FAILED_PRECONDITION if no kernel can
// run.
absl::StatusOr<SelectionTable> Tune(const KernelRegistry& registry,
                                    TuningDevice& device,
                                    const SelectionStamp& stamp,
                                    const SelectionGrid& grid,
                                    const TuningProgress& progress);
constexpr double kFarBehind = 2.5;
constexpr double kWorthDroppingUs = 20;

}  // namespace gemmd
