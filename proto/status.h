// absl::Status on our side, grpc::Status on the wire, and nothing lost between.
//
// The google.rpc details of an error ride on an absl::Status as payloads whose
// type URL is that of the packed message ("type.googleapis.com/google.rpc..."),
// and on the wire in a google.rpc.Status in `grpc-status-details-bin`.

#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace gemmd {

// Both directions keep code, message and details. A message over 1024 bytes is
// cut at the end, since it travels in a trailer.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same as a message, for items of a stream.
google::rpc::Status ToRpcStatus(const absl::Status& status);
absl::Status FromRpcStatus(const google::rpc::Status& status);

}  // namespace gemmd
