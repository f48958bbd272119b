#include "proto/error_details.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace gemmd {
namespace {

constexpr absl::string_view kTypeUrlPrefix = "type.googleapis.com/";

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat(kTypeUrlPrefix, Message::descriptor()->full_name());
}

template <typename Message>
void Attach(const Message& detail, absl::Status& status) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(detail.SerializeAsString()));
}

// False where there is no such detail.
template <typename Message>
bool Detach(const absl::Status& status, Message* detail) {
  const auto payload = status.GetPayload(TypeUrl<Message>());
  return payload.has_value() && detail->ParseFromString(std::string(*payload));
}

std::string Text(absl::string_view text) { return std::string(text); }

void AttachRetryInfo(absl::Duration delay, absl::Status& status) {
  delay = std::max(delay, absl::ZeroDuration());
  google::rpc::RetryInfo info;
  absl::Duration rest;
  info.mutable_retry_delay()->set_seconds(
      absl::IDivDuration(delay, absl::Seconds(1), &rest));
  info.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  Attach(info, status);
}

}  // namespace

absl::Status InvalidFieldError(absl::string_view field,
                               absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  google::rpc::BadRequest detail;
  auto* violation = detail.add_field_violations();
  violation->set_field(Text(field));
  violation->set_description(Text(message));
  Attach(detail, status);
  return status;
}

absl::Status QuotaError(absl::string_view subject, absl::string_view message,
                        absl::Duration retry_delay) {
  absl::Status status = absl::ResourceExhaustedError(message);
  google::rpc::QuotaFailure detail;
  auto* violation = detail.add_violations();
  violation->set_subject(Text(subject));
  violation->set_description(Text(message));
  Attach(detail, status);
  AttachRetryInfo(retry_delay, status);
  return status;
}

absl::Status LimitError(absl::string_view flag, uint64_t limit,
                        absl::string_view message) {
  return WithErrorInfo(absl::OutOfRangeError(message), "LIMIT_EXCEEDED",
                       {{"flag", Text(flag)}, {"limit", absl::StrCat(limit)}});
}

absl::Status UnavailableRetryError(absl::string_view message,
                                   absl::Duration retry_delay) {
  absl::Status status = absl::UnavailableError(message);
  AttachRetryInfo(retry_delay, status);
  return status;
}

absl::Status ResourceNotFoundError(absl::string_view type,
                                   absl::string_view name,
                                   absl::string_view message) {
  absl::Status status = absl::NotFoundError(message);
  google::rpc::ResourceInfo detail;
  detail.set_resource_type(Text(type));
  detail.set_resource_name(Text(name));
  detail.set_description(Text(message));
  Attach(detail, status);
  return status;
}

absl::Status FaultError(absl::string_view reason, absl::string_view message,
                        const std::map<std::string, std::string>& metadata) {
  return WithErrorInfo(absl::InternalError(message), reason, metadata);
}

absl::Status WithErrorInfo(absl::Status status, absl::string_view reason,
                           const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo detail;
  detail.set_reason(Text(reason));
  detail.set_domain("gemmd");
  for (const auto& [key, value] : metadata) {
    (*detail.mutable_metadata())[key] = value;
  }
  Attach(detail, status);
  return status;
}

std::string QuotaSubject(const absl::Status& status) {
  google::rpc::QuotaFailure detail;
  if (!Detach(status, &detail) || detail.violations().empty()) return "";
  return detail.violations(0).subject();
}

std::string ErrorReason(const absl::Status& status) {
  google::rpc::ErrorInfo detail;
  return Detach(status, &detail) ? detail.reason() : "";
}

std::string MissingResource(const absl::Status& status,
                            absl::string_view type) {
  google::rpc::ResourceInfo detail;
  if (!Detach(status, &detail) || detail.resource_type() != Text(type)) {
    return "";
  }
  return detail.resource_name();
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  google::rpc::RetryInfo info;
  if (!Detach(status, &info)) return std::nullopt;
  const absl::Duration delay = absl::Seconds(info.retry_delay().seconds()) +
                               absl::Nanoseconds(info.retry_delay().nanos());
  return std::max(delay, absl::ZeroDuration());
}

}  // namespace gemmd
