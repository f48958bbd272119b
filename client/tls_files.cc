#include "client/tls_files.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/pem_files.h"

namespace gemmd::client {
namespace {

absl::Status CheckOwnCertificate(const TlsOptions& options, absl::Time now) {
  const auto certificate = PemFile::Read(
      absl::StrCat("the client's certificate ", options.certificate),
      options.certificate);
  if (!certificate.ok()) return certificate.status();
  absl::Status status = certificate->CheckValid(now);
  if (!status.ok()) return status;
  const auto key =
      PemFile::Read(absl::StrCat("the key ", options.key), options.key);
  if (!key.ok()) return key.status();
  return key->CheckKeyOf(*certificate, options.certificate);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsOptions& options, absl::Time now) {
  if (!options.root_certificates.empty()) {
    const auto roots = PemFile::Read(
        absl::StrCat("the root certificates ", options.root_certificates),
        options.root_certificates);
    if (!roots.ok()) return roots.status();
    absl::Status status = roots->CheckCertificate();
    if (!status.ok()) return status;
  }
  if (options.certificate.empty() != options.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the client's ", options.key.empty() ? "key" : "certificate",
        " is missing: certificate and key go together"));
  }
  if (options.certificate.empty()) return absl::OkStatus();
  return CheckOwnCertificate(options, now);
}

}  // namespace gemmd::client
