#include "server/auth/tls_files.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/pem_files.h"

namespace gemmd {
namespace {

absl::StatusOr<PemFile> Read(absl::string_view flag, const std::string& path) {
  return PemFile::Read(absl::StrCat(flag, ": ", path), path);
}

absl::StatusOr<PemFile> ReadCertificate(absl::string_view flag,
                                        const std::string& path,
                                        absl::Time now) {
  absl::StatusOr<PemFile> file = Read(flag, path);
  if (!file.ok()) return file;
  if (absl::Status s = file->CheckValid(now); !s.ok()) return s;
  return file;
}

}  // namespace

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files,
                                         absl::Time now) {
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.certificate.empty() ? "--tls-cert" : "--tls-key",
                     " is missing; TLS takes --tls-cert and --tls-key"));
  }
  const auto certificate =
      ReadCertificate("--tls-cert", files.certificate, now);
  if (!certificate.ok()) return certificate.status();
  const auto key = Read("--tls-key", files.key);
  if (!key.ok()) return key.status();
  absl::Status status = key->CheckKeyOf(*certificate, files.certificate);
  if (!status.ok()) return status;
  TlsContents contents{.certificate = certificate->text(), .key = key->text()};
  if (files.client_ca.empty()) return contents;
  const auto roots = ReadCertificate("--tls-client-ca", files.client_ca, now);
  if (!roots.ok()) return roots.status();
  contents.client_ca = roots->text();
  return contents;
}

}  // namespace gemmd
