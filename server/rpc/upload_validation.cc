#include "server/rpc/upload_validation.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/rpc/field_checks.h"
#include "server/rpc/operand_validation.h"

namespace gemmd {
namespace {

absl::Status CheckShape(const UploadHeaderFields& header) {
  absl::Status status = CheckDimension("header", "rows", header.rows);
  status.Update(CheckDimension("header", "cols", header.cols));
  if (!status.ok()) return status;
  uint64_t bytes;
  if (MatrixBytes(header.rows, header.cols, &bytes) &&
      bytes <= std::numeric_limits<int64_t>::max()) {
    return absl::OkStatus();
  }
  return LimitError(
      "--matrix-store-bytes", std::numeric_limits<int64_t>::max(),
      absl::StrCat("the matrix would hold ", header.rows, " x ", header.cols,
                   " values of 4 bytes, more than any store "
                   "(--matrix-store-bytes)"));
}

absl::Status CheckDigest(const ShortText& digest) {
  if (digest.size == 0 || digest.size == kDigestBytes) return absl::OkStatus();
  return InvalidFieldError(
      "header.digest",
      absl::StrCat("header.digest has ", digest.size, " bytes; ", kDigestBytes,
                   ", or none, are wanted"));
}

}  // namespace

absl::StatusOr<UploadSpec> PlanUpload(const UploadHeaderFields& header) {
  absl::Status status = CheckShape(header);
  status.Update(CheckDigest(header.digest));
  if (header.matrix_id.size > 0) {
    status.Update(CheckMatrixId("header.matrix_id", header.matrix_id));
  }
  if (!status.ok()) return status;
  UploadSpec spec;
  spec.id = header.matrix_id.head;
  spec.digest = header.digest.head;
  spec.rows = static_cast<int64_t>(header.rows);
  spec.cols = static_cast<int64_t>(header.cols);
  if (header.ttl.has_value()) {
    auto ttl = CheckTtl("header.ttl", *header.ttl);
    if (!ttl.ok()) return ttl.status();
    spec.ttl = *ttl;
  }
  auto range =
      CheckRowRange("header.", spec.rows, header.first_row, header.row_count);
  if (!range.ok()) return range.status();
  spec.first_row = range->first;
  spec.row_count = range->count;
  if (spec.id.empty() && spec.row_count != spec.rows) {
    return InvalidFieldError(
        "header.matrix_id",
        absl::StrCat("header.matrix_id is empty and the stream carries ",
                     spec.row_count, " of ", spec.rows,
                     " rows; streams that carry one matrix name it"));
  }
  return spec;
}

}  // namespace gemmd
