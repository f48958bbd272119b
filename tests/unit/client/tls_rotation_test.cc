#include "client/tls_rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/time/clock.h"
#include "tests/support/certificates.h"

namespace gemmd::client {
namespace {

using ::testing::HasSubstr;

class ClientTlsRotationTest : public ::testing::Test {
 protected:
  ClientTlsRotationTest() { EXPECT_TRUE(LookLater()); }

  void Put(const std::string& certificate, const std::string& key) {
    WriteTestFile("rotated.pem", certificate);
    WriteTestFile("rotated.key", key);
  }

  bool LookLater() {
    now_ += TlsRotation::kInterval;
    return rotation_.Look(now_, date_);
  }

  void ExpectPairOf(const TestCertificate& wanted) {
    EXPECT_EQ(rotation_.current().certificate, wanted.certificate);
    EXPECT_EQ(rotation_.current().key, wanted.key);
  }

  const TestCertificate root_ =
      MakeCertificate({.common_name = "root", .authority = true});
  const TestCertificate first_ = MakeCertificate({}, &root_);
  const TestCertificate next_ = MakeCertificate({}, &root_);
  const TlsOptions options_ = {
      .root_certificates = WriteTestFile("roots.pem", root_.certificate),
      .certificate = WriteTestFile("rotated.pem", first_.certificate),
      .key = WriteTestFile("rotated.key", first_.key)};
  const absl::Time date_ = absl::Now();
  TlsRotation::Clock::time_point now_{};
  TlsRotation rotation_{options_};
};

TEST_F(ClientTlsRotationTest, FilesThatStayAreNothingNew) {
  ExpectPairOf(first_);
  EXPECT_EQ(rotation_.current().root_certificates, root_.certificate);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(LookLater());
  EXPECT_EQ(rotation_.problem(), "");
}

TEST_F(ClientTlsRotationTest, APairIsTakenWhenBothAreThere) {
  Put(next_.certificate, first_.key);
  EXPECT_FALSE(LookLater());
  EXPECT_THAT(rotation_.problem(),
              HasSubstr("is not the key of the certificate"));
  ExpectPairOf(first_);
  Put(next_.certificate, next_.key);
  EXPECT_TRUE(LookLater());
  EXPECT_EQ(rotation_.problem(), "");
  ExpectPairOf(next_);
}

TEST_F(ClientTlsRotationTest, HalfWrittenAndMissingFilesChangeNothing) {
  Put(next_.certificate.substr(0, next_.certificate.size() / 2), next_.key);
  EXPECT_FALSE(LookLater());
  EXPECT_THAT(rotation_.problem(), HasSubstr("holds no certificate"));
  Put(next_.certificate, "");
  EXPECT_FALSE(LookLater());
  EXPECT_THAT(rotation_.problem(), HasSubstr("holds no private key"));
  ASSERT_EQ(std::remove(options_.key.c_str()), 0);
  EXPECT_FALSE(LookLater());
  EXPECT_THAT(rotation_.problem(), HasSubstr("No such file"));
  Put(next_.certificate, next_.key);
  WriteTestFile("roots.pem", "");
  EXPECT_FALSE(LookLater());
  ExpectPairOf(first_);
  Put(first_.certificate, first_.key);
  WriteTestFile("roots.pem", root_.certificate);
  EXPECT_FALSE(LookLater());
  EXPECT_EQ(rotation_.problem(), "");
}

TEST_F(ClientTlsRotationTest, LooksOnceASecond) {
  Put(next_.certificate, next_.key);
  EXPECT_FALSE(rotation_.Look(
      now_ + TlsRotation::kInterval - std::chrono::nanoseconds(1), date_));
  EXPECT_TRUE(rotation_.Look(now_ + TlsRotation::kInterval, date_));
}

}  // namespace
}  // namespace gemmd::client
