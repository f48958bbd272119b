// From an upload's header to what the store can trust.

#pragma once

#include "absl/status/statusor.h"
#include "server/rpc/upload_decoder.h"
#include "server/store/matrix_store.h"

namespace gemmd {

// Judges a header: shape, id, ttl, digest and
// row range. The client is left to the caller.
//
// Errors: INVALID_ARGUMENT with the field's path; OUT_OF_RANGE for a matrix
// larger than any store.
absl::StatusOr<UploadSpec> PlanUpload(const UploadHeaderFields& header);

}  // namespace gemmd
