#include "tests/support/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

// A test whose certificates cannot be made has nothing left to say.
void Check(bool ok, const char* what) {
  if (ok) return;
  std::cerr << "certificates: " << what << " failed" << std::endl;
  std::abort();
}

template <auto kWrite, typename T>
std::string Pem(T* object) {
  BIO* const memory = BIO_new(BIO_s_mem());
  Check(kWrite(memory, object) == 1, "writing PEM");
  char* data;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(memory);
  return text;
}

int WriteKey(BIO* memory, EVP_PKEY* key) {
  return PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr,
                                  nullptr);
}

template <auto kRead>
auto FromPem(const std::string& text) {
  BIO* const memory = BIO_new_mem_buf(text.data(), -1);
  auto* const object = kRead(memory, nullptr, nullptr, nullptr);
  BIO_free(memory);
  Check(object != nullptr, "reading PEM");
  return object;
}

void AddExtension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  Check(extension != nullptr, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

void Describe(const CertificateSpec& spec, X509* certificate) {
  static long serial = 1;
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(certificate),
                absl::ToTimeT(spec.not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(spec.not_after));
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(spec.common_name.c_str()), -1, -1,
      0);
  AddExtension(certificate, NID_basic_constraints,
               spec.authority ? "critical,CA:TRUE" : "CA:FALSE");
  if (!spec.dns_names.empty()) {
    AddExtension(certificate, NID_subject_alt_name,
                 absl::StrCat("DNS:", absl::StrJoin(spec.dns_names, ",DNS:")));
  }
}

}  // namespace

TestCertificate MakeCertificate(const CertificateSpec& spec,
                                const TestCertificate* issuer) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(),
                                                                X509_free);
  Check(key != nullptr && certificate != nullptr, "making a key");
  Describe(spec, certificate.get());
  X509_set_pubkey(certificate.get(), key.get());
  if (issuer == nullptr) {
    X509_set_issuer_name(certificate.get(),
                         X509_get_subject_name(certificate.get()));
    Check(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "signing");
  } else {
    const std::unique_ptr<X509, decltype(&X509_free)> root(
        FromPem<PEM_read_bio_X509>(issuer->certificate), X509_free);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> root_key(
        FromPem<PEM_read_bio_PrivateKey>(issuer->key), EVP_PKEY_free);
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(root.get()));
    Check(X509_sign(certificate.get(), root_key.get(), EVP_sha256()) > 0,
          "signing");
  }
  return {.certificate = Pem<PEM_write_bio_X509>(certificate.get()),
          .key = Pem<WriteKey>(key.get())};
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  std::string path = absl::StrCat(testing::TempDir(), getpid(), "_", name);
  const std::string next = path + ".next";
  std::ofstream(next, std::ios::binary) << text;
  std::filesystem::permissions(next, std::filesystem::perms::owner_read |
                                         std::filesystem::perms::owner_write);
  std::filesystem::rename(next, path);
  return path;
}

}  // namespace gemmd
