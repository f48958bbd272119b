#include "server/auth/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

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
using Memory = std::unique_ptr<BIO, Free<&BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>>;

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status Bad(absl::string_view flag, absl::string_view path,
                 absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, what));
}

absl::StatusOr<std::string> ReadWhole(absl::string_view flag,
                                      const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) {
    return Bad(flag, path, absl::StrCat(": ", std::strerror(errno)));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Bad(flag, path, absl::StrCat(": ", std::strerror(errno)));
  }
  if (text.size() > kMaxFileBytes) {
    return Bad(flag, path, absl::StrCat(" is over ", kMaxFileBytes, " bytes"));
  }
  return text;
}

Memory MemoryOf(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<Certificate> ParseCertificate(absl::string_view flag,
                                             const std::string& path,
                                             const std::string& text) {
  Certificate certificate(
      PEM_read_bio_X509(MemoryOf(text).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(flag, path,
               " holds no certificate; one in PEM is wanted (\"-----BEGIN "
               "CERTIFICATE-----\")");
  }
  return certificate;
}

// No password is asked for: a server starts without anybody there.
int NoPassword(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ParseKey(absl::string_view flag, const std::string& path,
                             const std::string& text) {
  Key key(PEM_read_bio_PrivateKey(MemoryOf(text).get(), nullptr, NoPassword,
                                  nullptr));
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

// Reads a certificate into `text` and judges it.
absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag,
                                            const std::string& path,
                                            absl::Time now, std::string* text) {
  absl::StatusOr<std::string> read = ReadWhole(flag, path);
  if (!read.ok()) return read.status();
  *text = *std::move(read);
  absl::StatusOr<Certificate> certificate = ParseCertificate(flag, path, *text);
  if (!certificate.ok()) return certificate;
  absl::Status status = CheckValidity(**certificate, flag, path, now);
  if (!status.ok()) return status;
  return certificate;
}

}  // namespace

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files,
                                         absl::Time now) {
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.certificate.empty() ? "--tls-cert" : "--tls-key",
                     " is missing; TLS takes --tls-cert and --tls-key"));
  }
  TlsContents contents;
  const auto certificate = ReadCertificate("--tls-cert", files.certificate, now,
                                           &contents.certificate);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key_text = ReadWhole("--tls-key", files.key);
  if (!key_text.ok()) return key_text.status();
  contents.key = *std::move(key_text);
  const auto key = ParseKey("--tls-key", files.key, contents.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Bad("--tls-key", files.key,
               absl::StrCat(" is not the key of the certificate in ",
                            files.certificate));
  }
  if (files.client_ca.empty()) return contents;
  const auto root = ReadCertificate("--tls-client-ca", files.client_ca, now,
                                    &contents.client_ca);
  if (!root.ok()) return root.status();
  return contents;
}

}  // namespace gemmd
