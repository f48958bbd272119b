// Errors with google.rpc details, one function a case of the wire contract.
// A message says what was got and what was wanted and names the flag that sets
// a limit; it never holds an internal name, path or address.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd {

// INVALID_ARGUMENT with BadRequest: `field` as "a.leading_dimension".
absl::Status InvalidFieldError(absl::string_view field,
                               absl::string_view message);

// RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo. `subject` is the budget,
// as "queue-max-bytes".
absl::Status QuotaError(absl::string_view subject, absl::string_view message,
                        absl::Duration retry_delay);

// OUT_OF_RANGE with ErrorInfo "LIMIT_EXCEEDED": more than `limit` can never be.
// `flag` sets it, as "--max-inline-bytes"; the metadata hold both.
absl::Status LimitError(absl::string_view flag, uint64_t limit,
                        absl::string_view message);

// UNAVAILABLE with RetryInfo.
absl::Status UnavailableRetryError(absl::string_view message,
                                   absl::Duration retry_delay);

// NOT_FOUND with ResourceInfo: `type` as "gemmd.v1.Matrix" or
// "gemmd.v1.Kernel".
absl::Status ResourceNotFoundError(absl::string_view type,
                                   absl::string_view name,
                                   absl::string_view message);

// INTERNAL with ErrorInfo in the domain "gemmd": `reason` as "DEVICE_FAULT".
absl::Status FaultError(absl::string_view reason, absl::string_view message,
                        const std::map<std::string, std::string>& metadata);

// `status` with ErrorInfo in the domain "gemmd": `reason` as
// "KERNEL_NOT_FOUND".
absl::Status WithErrorInfo(absl::Status status, absl::string_view reason,
                           const std::map<std::string, std::string>& metadata);

// The first subject of a status's QuotaFailure; empty where there is none.
std::string QuotaSubject(const absl::Status& status);

// The reason in a status's ErrorInfo; empty where there is none.
std::string ErrorReason(const absl::Status& status);

// The name in a status's ResourceInfo, if that is of `type`; else empty.
std::string MissingResource(const absl::Status& status, absl::string_view type);

// The delay in a status's RetryInfo; nullopt where there is none, and so no
// retry is wanted.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

}  // namespace gemmd
