// Which kernels `auto` takes on this machine: measuring them, and what an
// earlier measurement left.

#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/options.h"

namespace gemmd {

// What --tune does: measures the kernels of the current CUDA device and writes
// options.selection_cache, saying on `progress` how far it is. Takes minutes.
// INVALID_ARGUMENT where flags do not go together or no file can be made there,
// before anything is measured; FAILED_PRECONDITION without a device; INTERNAL
// if a launch fails or the file cannot be written. An earlier file stays until
// the new one is there.
absl::Status RunTune(const ServerOptions& options, std::ostream& progress);

// Gives the registry the table of options.selection_cache, if one is named and
// was measured on this machine with this program; else leaves it as it is, with
// one warning in the log. Called once, before the first request: nothing
// changes while a server runs.
void UseSelectionCache(const ServerOptions& options, KernelRegistry* registry);

}  // namespace gemmd
