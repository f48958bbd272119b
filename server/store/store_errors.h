// What clients are told of matrices. Never of another client's.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/store/store_budget.h"

namespace gemmd {

// NOT_FOUND: never there, deleted, expired or evicted.
absl::Status MatrixNotFoundError(absl::string_view id);

// NOT_FOUND: deleted, replaced or given up while it was uploaded.
absl::Status UploadGoneError(absl::string_view id);

// FAILED_PRECONDITION: rows are missing.
absl::Status MatrixIncompleteError(absl::string_view id);

// OUT_OF_RANGE where it never could fit, else RESOURCE_EXHAUSTED.
absl::Status NoRoomError(size_t bytes, const BudgetLack& lack);

// RESOURCE_EXHAUSTED: as many names as can be.
absl::Status TooManyNamesError(int64_t names);

}  // namespace gemmd
