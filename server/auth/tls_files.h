// The server's TLS certificate, its key, and whom it trusts: files that are
// judged before gRPC sees them, which would only refuse every handshake.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd {

// PEM files. A server with TLS has the first two; with the third it asks every
// client for a certificate (mTLS).
struct TlsFiles {
  std::string certificate;  // the chain, the server's own first. --tls-cert
  std::string key;          // its private key, unencrypted. --tls-key
  std::string client_ca;    // roots that client certificates come from.
                            // --tls-client-ca

  bool any() const {
    return !certificate.empty() || !key.empty() || !client_ca.empty();
  }
};

// What they hold, in PEM; client_ca is empty where there is none.
struct TlsContents {
  std::string certificate;
  std::string key;
  std::string client_ca;

  friend bool operator==(const TlsContents&, const TlsContents&) = default;
};

// Reads each file once and judges what it has read: what is returned is a
// server's that can be made of it at `now`. INVALID_ARGUMENT, naming the flag,
// the file and what is wrong: one given without the other, unreadable, no PEM
// of its kind, a key of another certificate, a certificate that is not valid
// yet or any more. Needs: files.any().
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files, absl::Time now);

}  // namespace gemmd
