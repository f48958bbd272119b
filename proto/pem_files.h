// PEM files of certificates and keys, read and judged before gRPC sees them,
// which would only fail its handshakes. Here because both a client and a server
// have such files, and share nothing but this folder.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd {

// What one file holds.
//
// Errors: all are INVALID_ARGUMENT and begin with the file's name: it cannot be
// read, is over 1 MiB, or is not what it is asked for.
class PemFile {
 public:
  // `name` is how an error names the file, its path included: "the key me.pem",
  // "--tls-key: me.pem".
  static absl::StatusOr<PemFile> Read(std::string name,
                                      const std::string& path);

  const std::string& text() const { return text_; }

  // The first certificate in it: that there is one; that it is valid at `now`.
  absl::Status CheckCertificate() const;
  absl::Status CheckValid(absl::Time now) const;

  // That it holds an unencrypted private key, the one of the first certificate
  // in `certificate`, whose path is given for the error.
  absl::Status CheckKeyOf(const PemFile& certificate,
                          const std::string& certificate_path) const;

 private:
  PemFile(std::string name, std::string text);

  std::string name_;
  std::string text_;
};

}  // namespace gemmd
