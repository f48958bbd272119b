#include "server/rpc/refusals.h"

#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {

absl::Status DrainingError() {
  return UnavailableRetryError("the server is draining; ask another or again",
                               absl::Seconds(1));
}

absl::Status NoMatricesError() {
  return absl::UnimplementedError(
      "this server keeps no resident matrices; send operands inline");
}

}  // namespace gemmd
