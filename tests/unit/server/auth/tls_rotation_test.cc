#include "server/auth/tls_rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/time/clock.h"
#include "tests/support/certificates.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class TlsRotationTest : public testing::Test {
 protected:
  void Put(const std::string& certificate, const std::string& key) {
    WriteTestFile("rotated.pem", certificate);
    WriteTestFile("rotated.key", key);
  }

  absl::StatusOr<bool> LookLater() {
    now_ += TlsRotation::kInterval;
    return rotation_.Look(now_, date_);
  }

  const TestCertificate first_ = MakeCertificate({});
  const TestCertificate next_ = MakeCertificate({});
  const TlsFiles files_ = {
      .certificate = WriteTestFile("rotated.pem", first_.certificate),
      .key = WriteTestFile("rotated.key", first_.key)};
  const absl::Time date_ = absl::Now();
  MonotonicTime now_{};
  TlsRotation rotation_{files_, *ReadTlsFiles(files_, date_)};
};

TEST_F(TlsRotationTest, FilesThatStayAreNothingNew) {
  for (int i = 0; i < 3; ++i) {
    const auto changed = LookLater();
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_FALSE(*changed);
  }
}

TEST_F(TlsRotationTest, APairIsTakenWhenBothAreThere) {
  ASSERT_TRUE(LookLater().ok());
  Put(next_.certificate, first_.key);
  const auto half = LookLater();
  EXPECT_THAT(half.status().message(), HasSubstr("is not the key"));
  EXPECT_EQ(rotation_.current().certificate, first_.certificate);
  EXPECT_EQ(rotation_.current().key, first_.key);
  // Told once.
  const auto still = LookLater();
  ASSERT_TRUE(still.ok()) << still.status();
  EXPECT_FALSE(*still);

  Put(next_.certificate, next_.key);
  const auto whole = LookLater();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(*whole);
  EXPECT_EQ(rotation_.current().certificate, next_.certificate);
  EXPECT_EQ(rotation_.current().key, next_.key);
}

TEST_F(TlsRotationTest, HalfWrittenAndMissingFilesChangeNothing) {
  Put(next_.certificate.substr(0, next_.certificate.size() / 2), next_.key);
  EXPECT_THAT(LookLater().status().message(),
              HasSubstr("holds no certificate"));
  Put(next_.certificate, "");
  EXPECT_THAT(LookLater().status().message(),
              HasSubstr("holds no private key"));
  ASSERT_EQ(std::remove(files_.key.c_str()), 0);
  EXPECT_THAT(LookLater().status().message(), HasSubstr("No such file"));
  EXPECT_EQ(rotation_.current().certificate, first_.certificate);
  Put(first_.certificate, first_.key);
  const auto back = LookLater();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_FALSE(*back);
}

TEST_F(TlsRotationTest, ACertificateThatHasExpiredIsNotTaken) {
  const TestCertificate late =
      MakeCertificate({.not_before = date_ - absl::Hours(2),
                       .not_after = date_ - absl::Hours(1)});
  Put(late.certificate, late.key);
  EXPECT_THAT(LookLater().status().message(), HasSubstr("has expired"));
  EXPECT_EQ(rotation_.current().certificate, first_.certificate);
}

TEST_F(TlsRotationTest, LooksOnceASecond) {
  ASSERT_TRUE(LookLater().ok());
  Put(next_.certificate, next_.key);
  now_ -= std::chrono::nanoseconds(1);
  EXPECT_FALSE(*LookLater());
  now_ += std::chrono::nanoseconds(1);
  EXPECT_TRUE(*rotation_.Look(now_, date_));
}

}  // namespace
}  // namespace gemmd
