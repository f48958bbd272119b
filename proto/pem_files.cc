#include "proto/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

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

absl::Status Bad(absl::string_view name, absl::string_view why) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(name, why));
}

absl::Status SystemError(absl::string_view name, int error) {
  return Bad(name, absl::StrCat(": ", std::generic_category().message(error)));
}

Memory MemoryOf(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<Certificate> FirstCertificate(absl::string_view name,
                                             const std::string& text) {
  Certificate certificate(
      PEM_read_bio_X509(MemoryOf(text).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(name,
               " holds no certificate; one in PEM is wanted (\"-----BEGIN "
               "CERTIFICATE-----\")");
  }
  return certificate;
}

// A program has nobody to ask for a password.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

PemFile::PemFile(std::string name, std::string text)
    : name_(std::move(name)), text_(std::move(text)) {}

absl::StatusOr<PemFile> PemFile::Read(std::string name,
                                      const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return SystemError(name, errno);
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return SystemError(name, errno);
  if (text.size() > kMaxFileBytes) {
    return Bad(name, absl::StrCat(" is over ", kMaxFileBytes, " bytes"));
  }
  return PemFile(std::move(name), std::move(text));
}

absl::Status PemFile::CheckCertificate() const {
  return FirstCertificate(name_, text_).status();
}

absl::Status PemFile::CheckValid(absl::Time now) const {
  const auto certificate = FirstCertificate(name_, text_);
  if (!certificate.ok()) return certificate.status();
  time_t at = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notBefore(certificate->get()), &at) > 0) {
    return Bad(name_, " is not valid yet; is the clock right?");
  }
  if (X509_cmp_time(X509_get0_notAfter(certificate->get()), &at) < 0) {
    return Bad(name_, " has expired; a valid certificate is wanted");
  }
  return absl::OkStatus();
}

absl::Status PemFile::CheckKeyOf(const PemFile& certificate,
                                 const std::string& certificate_path) const {
  const Key key(PEM_read_bio_PrivateKey(MemoryOf(text_).get(), nullptr,
                                        NoPassword, nullptr));
  if (key == nullptr) {
    return Bad(name_,
               " holds no private key that can be read; one in PEM without a "
               "password is wanted");
  }
  const auto other = FirstCertificate(certificate.name_, certificate.text_);
  if (!other.ok()) return other.status();
  if (X509_check_private_key(other->get(), key.get()) != 1) {
    return Bad(name_, absl::StrCat(" is not the key of the certificate in ",
                                   certificate_path));
  }
  return absl::OkStatus();
}

}  // namespace gemmd
