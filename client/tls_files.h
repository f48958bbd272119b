// Whether the files of a client's TLS can be used, said before gRPC only fails
// its handshakes.

#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gemmd/tls.h"

namespace gemmd::client {

// OK where a client can be made of them at `now`. INVALID_ARGUMENT, naming the
// file and what is wrong with it: one of certificate and key without the other,
// unreadable, no PEM of its kind, a key of another certificate, a certificate
// that is not valid yet or any more.
absl::Status CheckTlsFiles(const TlsOptions& options, absl::Time now);

}  // namespace gemmd::client
