// The files of a client's TLS, judged before gRPC sees them, which would only
// fail its handshakes.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/tls.h"

namespace gemmd::client {

// What they hold, in PEM; empty where no file is named.
struct TlsContents {
  std::string root_certificates;
  std::string certificate;
  std::string key;

  friend bool operator==(const TlsContents&, const TlsContents&) = default;
};

// Reads each file once and judges what it has read: a client can be made of
// what is returned at `now`. INVALID_ARGUMENT, naming the file and what is
// wrong with it: one of certificate and key without the other, unreadable, no
// PEM of its kind, a key of another certificate, a certificate that is not
// valid yet or any more.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsOptions& options,
                                         absl::Time now);

}  // namespace gemmd::client
