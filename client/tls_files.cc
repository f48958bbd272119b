#include "client/tls_files.h"

#include "absl/strings/str_cat.h"
#include "proto/pem_files.h"

namespace gemmd::client {
namespace {

absl::Status ReadOwn(const TlsOptions& options, absl::Time now,
                     TlsContents* contents) {
  const auto certificate = PemFile::Read(
      absl::StrCat("the client's certificate ", options.certificate),
      options.certificate);
  if (!certificate.ok()) return certificate.status();
  absl::Status status = certificate->CheckValid(now);
  if (!status.ok()) return status;
  const auto key =
      PemFile::Read(absl::StrCat("the key ", options.key), options.key);
  if (!key.ok()) return key.status();
  status = key->CheckKeyOf(*certificate, options.certificate);
  if (!status.ok()) return status;
  contents->certificate = certificate->text();
  contents->key = key->text();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsOptions& options,
                                         absl::Time now) {
  TlsContents contents;
  if (!options.root_certificates.empty()) {
    const auto roots = PemFile::Read(
        absl::StrCat("the root certificates ", options.root_certificates),
        options.root_certificates);
    if (!roots.ok()) return roots.status();
    absl::Status status = roots->CheckCertificate();
    if (!status.ok()) return status;
    contents.root_certificates = roots->text();
  }
  if (options.certificate.empty() != options.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the client's ", options.key.empty() ? "key" : "certificate",
        " is missing: certificate and key go together"));
  }
  if (options.certificate.empty()) return contents;
  absl::Status status = ReadOwn(options, now, &contents);
  if (!status.ok()) return status;
  return contents;
}

}  // namespace gemmd::client
