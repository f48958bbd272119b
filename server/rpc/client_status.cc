#include "server/rpc/client_status.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "proto/error_details.h"

namespace gemmd {

absl::Status ForClient(const absl::Status& status) {
  if (!absl::IsInternal(status) && !absl::IsUnknown(status)) return status;
  bool has_details = false;
  status.ForEachPayload(
      [&](absl::string_view, const absl::Cord&) { has_details = true; });
  if (has_details) return status;
  return FaultError("SERVER_FAULT", "the server failed; its log says why", {});
}

}  // namespace gemmd
