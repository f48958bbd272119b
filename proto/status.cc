#include "proto/status.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/any.pb.h"

namespace gemmd {
namespace {

constexpr size_t kMaxMessageBytes = 1024;

// The longest prefix within the limit that splits no UTF-8 character.
std::string CutMessage(absl::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(message.substr(0, end));
}

// Details become payloads. Two of one type are joined, which protobuf defines
// as merging the messages.
void AddPayloads(const google::rpc::Status& from, absl::Status& to) {
  for (const google::protobuf::Any& detail : from.details()) {
    absl::Cord payload =
        to.GetPayload(detail.type_url()).value_or(absl::Cord());
    payload.Append(detail.value());
    to.SetPayload(detail.type_url(), std::move(payload));
  }
}

}  // namespace

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status result;
  result.set_code(static_cast<int>(status.code()));
  result.set_message(CutMessage(status.message()));
  std::vector<google::protobuf::Any> details;
  status.ForEachPayload(
      [&](absl::string_view type_url, const absl::Cord& payload) {
        google::protobuf::Any& detail = details.emplace_back();
        detail.set_type_url(std::string(type_url));
        detail.set_value(std::string(payload));
      });
  // ForEachPayload has no order; the wire should.
  std::sort(details.begin(), details.end(), [](const auto& x, const auto& y) {
    return x.type_url() < y.type_url();
  });
  for (auto& detail : details) *result.add_details() = std::move(detail);
  return result;
}

absl::Status FromRpcStatus(const google::rpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.code()),
                      status.message());
  AddPayloads(status, result);
  return result;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status details = ToRpcStatus(status);
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()), details.message(),
      details.details().empty() ? "" : details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  // The codes are the same numbers; Abseil takes one it does not know as
  // UNKNOWN.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  google::rpc::Status details;
  // Another server's details may be of any form; what cannot be read as
  // google.rpc.Status is no detail of ours.
  if (details.ParseFromString(status.error_details())) {
    AddPayloads(details, result);
  }
  return result;
}

}  // namespace gemmd
