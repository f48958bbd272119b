#include "server/auth/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using File = std::unique_ptr<FILE, Free<&std::fclose>>;
using Certificate = std::unique_ptr<X509, Free<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>>;

absl::Status Bad(absl::string_view flag, absl::string_view path,
                 absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, what));
}

absl::StatusOr<File> Open(absl::string_view flag, const std::string& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) {
    return Bad(flag, path, absl::StrCat(": ", std::strerror(errno)));
  }
  return file;
}

absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag,
                                            const std::string& path) {
  absl::StatusOr<File> file = Open(flag, path);
  if (!file.ok()) return file.status();
  Certificate certificate(
      PEM_read_X509(file->get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(flag, path,
               " holds no certificate; one in PEM is wanted (\"-----BEGIN "
               "CERTIFICATE-----\")");
  }
  return certificate;
}

// No password is asked for: a server starts without anybody there.
int NoPassword(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ReadKey(absl::string_view flag, const std::string& path) {
  absl::StatusOr<File> file = Open(flag, path);
  if (!file.ok()) return file.status();
  Key key(PEM_read_PrivateKey(file->get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Bad(flag, path,
               " holds no private key that can be read; one in PEM without a "
               "password is wanted");
  }
  return key;
}

absl::Status CheckValidity(const X509& certificate, absl::string_view flag,
                           const std::string& path, absl::Time now) {
  time_t at = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notBefore(&certificate), &at) > 0) {
    return Bad(flag, path, " is not valid yet; is the clock right?");
  }
  if (X509_cmp_time(X509_get0_notAfter(&certificate), &at) < 0) {
    return Bad(flag, path, " has expired; a valid certificate is wanted");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files, absl::Time now) {
  if (!files.any()) return absl::OkStatus();
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.certificate.empty() ? "--tls-cert" : "--tls-key",
                     " is missing; TLS takes --tls-cert and --tls-key"));
  }
  const auto certificate = ReadCertificate("--tls-cert", files.certificate);
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadKey("--tls-key", files.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Bad("--tls-key", files.key,
               absl::StrCat(" is not the key of the certificate in ",
                            files.certificate));
  }
  absl::Status status =
      CheckValidity(**certificate, "--tls-cert", files.certificate, now);
  if (!status.ok() || files.client_ca.empty()) return status;
  const auto root = ReadCertificate("--tls-client-ca", files.client_ca);
  if (!root.ok()) return root.status();
  return CheckValidity(**root, "--tls-client-ca", files.client_ca, now);
}

}  // namespace gemmd
