// Certificates made for a test, with nothing but OpenSSL.

#pragma once

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd {

// What a certificate says.
struct CertificateSpec {
  std::string common_name = "localhost";
  std::vector<std::string> dns_names = {"localhost"};
  bool authority = false;  // may sign others
  absl::Time not_before = absl::Now() - absl::Hours(1);
  absl::Time not_after = absl::Now() + absl::Hours(1);
};

// PEM texts.
struct TestCertificate {
  std::string certificate;
  std::string key;
};

// Signed by `issuer`, or by itself where that is null. An EC key of its own.
TestCertificate MakeCertificate(const CertificateSpec& spec,
                                const TestCertificate* issuer = nullptr);

// Writes `text` to a file of the test's folder, readable by its owner alone,
// in one step; its path.
std::string WriteTestFile(const std::string& name, const std::string& text);

}  // namespace gemmd
