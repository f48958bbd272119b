// A SelectionTable in a file: what `gemmd --tune` leaves for later starts.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/selection_table.h"

namespace gemmd {

// The table of the file. NOT_FOUND if there is no such file; INVALID_ARGUMENT,
// naming the line, if it is malformed; FAILED_PRECONDITION, naming the first
// stamp that differs and both values, if it was not measured with `stamp`'s
// GPU, driver, CUDA, cuBLAS and build.
absl::StatusOr<SelectionTable> ReadSelectionCache(const std::string& path,
                                                  const SelectionStamp& stamp);

// Writes the table: at any time the file has all of the old one or all of the
// new one. INTERNAL, naming the path and the reason, if it cannot.
absl::Status WriteSelectionCache(const std::string& path,
                                 const SelectionTable& table);

}  // namespace gemmd
