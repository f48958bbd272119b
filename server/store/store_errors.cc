#include "server/store/store_errors.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

constexpr char kType[] = "gemmd.v1.Matrix";

// A product's worth: what is in use is not for long.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(250);

}  // namespace

absl::Status MatrixNotFoundError(absl::string_view id) {
  return ResourceNotFoundError(
      kType, id,
      absl::StrCat("there is no matrix \"", id,
                   "\"; it may have expired (--matrix-ttl), made room for "
                   "others or been deleted: upload it again"));
}

absl::Status UploadGoneError(absl::string_view id) {
  return ResourceNotFoundError(
      kType, id,
      absl::StrCat("the matrix \"", id,
                   "\" was deleted, replaced or given up while it was "
                   "uploaded"));
}

// Names the matrix, as where there is none: a client that uploads it just now
// knows then what to wait for.
absl::Status MatrixIncompleteError(absl::string_view id) {
  const std::string message =
      absl::StrCat("rows of the matrix \"", id, "\" are still to come");
  absl::Status status = absl::FailedPreconditionError(message);
  ResourceNotFoundError(kType, id, message)
      .ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
        status.SetPayload(type, payload);
      });
  return status;
}

absl::Status NoRoomError(size_t bytes, const BudgetLack& lack) {
  const bool client = lack.of == BudgetLack::Of::kClient;
  const absl::string_view whose =
      client ? "one client's matrices" : "matrices on a device";
  if (!lack.ever) {
    return LimitError(
        "--matrix-store-bytes", lack.limit,
        absl::StrCat("the matrix has ", bytes, " bytes; ", whose, " may have ",
                     lack.limit, " (--matrix-store-bytes)"));
  }
  return QuotaError(
      "matrix-store-bytes",
      absl::StrCat("the matrix has ", bytes, " bytes; of the ", lack.limit,
                   " that ", whose, " may have (--matrix-store-bytes), ",
                   lack.in_use,
                   " are taken, and too few of them by matrices that nobody "
                   "uses now"),
      kRetryDelay);
}

absl::Status TooManyNamesError(int64_t names) {
  return QuotaError(
      "matrix-names",
      absl::StrCat("there are ", names, " matrices, and all are in use"),
      kRetryDelay);
}

}  // namespace gemmd
