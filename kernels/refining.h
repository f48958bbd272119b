// Looks closer where a table leaves the race between kernels open.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "kernels/selection_table.h"
#include "kernels/tuning.h"
#include "kernels/tuning_device.h"

namespace gemmd {

// `grid` with one more size between each two of it, about their geometric mean:
// past 64 just below a whole number of tiles of 64, and never a power of two.
SelectionGrid FinerGrid(const SelectionGrid& grid);

// `coarse` on a finer grid. At a new shape those kernels are measured that
// `coarse` sees within `near` (1.1, say) times the fastest of some precision,
// where that is more than one; all others have the time that `coarse` predicts,
// or none if that is more than kFarBehind times the fastest's.
//
// So the time that it takes goes where two kernels cross. Errors as Tune.
absl::StatusOr<SelectionTable> Refine(const KernelRegistry& registry,
                                      TuningDevice& device,
                                      const SelectionTable& coarse, double near,
                                      const TuningProgress& progress);

// What ships and what --tune writes: Tune over the default grid, then Refine.
absl::StatusOr<SelectionTable> TuneFinely(const KernelRegistry& registry,
                                          TuningDevice& device,
                                          const SelectionStamp& stamp,
                                          const TuningProgress& progress);

}  // namespace gemmd
