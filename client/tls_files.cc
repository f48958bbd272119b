#include "client/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {
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

absl::Status Bad(absl::string_view what, absl::string_view path,
                 absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", path, why));
}

absl::StatusOr<File> Open(absl::string_view what, const std::string& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) {
    return Bad(what, path, absl::StrCat(": ", std::strerror(errno)));
  }
  return file;
}

// The first in the file.
absl::StatusOr<Certificate> ReadCertificate(absl::string_view what,
                                            const std::string& path) {
  absl::StatusOr<File> file = Open(what, path);
  if (!file.ok()) return file.status();
  Certificate certificate(
      PEM_read_X509(file->get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(what, path,
               " holds no certificate; one in PEM is wanted (\"-----BEGIN "
               "CERTIFICATE-----\")");
  }
  return certificate;
}

// A program has nobody to ask for a password.
int NoPassword(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ReadKey(const std::string& path) {
  absl::StatusOr<File> file = Open("the key", path);
  if (!file.ok()) return file.status();
  Key key(PEM_read_PrivateKey(file->get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Bad("the key", path,
               " holds no private key that can be read; one in PEM without a "
               "password is wanted");
  }
  return key;
}

absl::Status CheckOwnCertificate(const TlsOptions& options, absl::Time now) {
  constexpr absl::string_view kWhat = "the client's certificate";
  const std::string& path = options.certificate;
  const auto certificate = ReadCertificate(kWhat, path);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<Key> key = ReadKey(options.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Bad("the key", options.key,
               absl::StrCat(" is not that of the certificate in ", path));
  }
  time_t at = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notBefore(certificate->get()), &at) > 0) {
    return Bad(kWhat, path, " is not valid yet; is the clock right?");
  }
  if (X509_cmp_time(X509_get0_notAfter(certificate->get()), &at) < 0) {
    return Bad(kWhat, path, " has expired; ask for a new one");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTlsFiles(const TlsOptions& options, absl::Time now) {
  const absl::Cleanup forget = [] { ERR_clear_error(); };
  if (!options.root_certificates.empty()) {
    const auto root =
        ReadCertificate("the root certificates", options.root_certificates);
    if (!root.ok()) return root.status();
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
