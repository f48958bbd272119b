#include "server/execute/staging_errors.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

// A few large transfers' worth.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(100);

}  // namespace

absl::Status StagingTooLargeError(size_t bytes, size_t capacity) {
  return LimitError("--pinned-pool-bytes", capacity,
                    absl::StrCat("the request needs ", bytes,
                                 " bytes of staging memory; there are ",
                                 capacity, " in all (--pinned-pool-bytes)"));
}

absl::Status StagingFullError(size_t bytes, size_t used, size_t capacity) {
  return QuotaError(
      "pinned-pool-bytes",
      absl::StrCat("the request needs ", bytes,
                   " bytes of staging memory in one piece; ", used, " of ",
                   capacity, " are taken (--pinned-pool-bytes)"),
      kRetryDelay);
}

}  // namespace gemmd
