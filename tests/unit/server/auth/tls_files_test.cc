#include "server/auth/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/certificates.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class TlsFilesTest : public testing::Test {
 protected:
  static std::string Trouble(const TlsFiles& files) {
    const absl::Status status = ReadTlsFiles(files, absl::Now()).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  const TestCertificate root_ =
      MakeCertificate({.common_name = "root", .authority = true});
  const TestCertificate server_ = MakeCertificate({}, &root_);
  const TlsFiles files_ = {
      .certificate = WriteTestFile("server.pem", server_.certificate),
      .key = WriteTestFile("server.key", server_.key),
      .client_ca = WriteTestFile("root.pem", root_.certificate)};
};

TEST_F(TlsFilesTest, TakesTwoAndThreeFiles) {
  EXPECT_EQ(Trouble(files_), "");
  TlsFiles two = files_;
  two.client_ca.clear();
  EXPECT_EQ(Trouble(two), "");
}

TEST_F(TlsFilesTest, GivesWhatItHasJudged) {
  const auto contents = ReadTlsFiles(files_, absl::Now());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(*contents, (TlsContents{.certificate = server_.certificate,
                                    .key = server_.key,
                                    .client_ca = root_.certificate}));
}

TEST_F(TlsFilesTest, WantsCertificateAndKeyTogether) {
  EXPECT_THAT(Trouble({.certificate = files_.certificate}),
              HasSubstr("--tls-key is missing"));
  EXPECT_THAT(Trouble({.key = files_.key}), HasSubstr("--tls-cert is missing"));
  EXPECT_THAT(Trouble({.client_ca = files_.client_ca}),
              HasSubstr("--tls-cert is missing"));
}

TEST_F(TlsFilesTest, SaysWhichFileCannotBeUsedAndWhy) {
  TlsFiles files = files_;
  files.certificate = files_.certificate + ".gone";
  EXPECT_THAT(Trouble(files), HasSubstr("No such file"));
  files.certificate = files_.key;
  EXPECT_THAT(Trouble(files), HasSubstr("holds no certificate"));
  files = files_;
  files.key = files_.certificate;
  EXPECT_THAT(Trouble(files), HasSubstr("holds no private key"));
  files.key = WriteTestFile("other.key", root_.key);
  EXPECT_THAT(Trouble(files), HasSubstr("is not the key of the certificate"));
  files = files_;
  files.client_ca = WriteTestFile("empty.pem", "");
  EXPECT_THAT(Trouble(files), HasSubstr("--tls-client-ca: "));
}

TEST_F(TlsFilesTest, RefusesACertificateOutOfItsTime) {
  const absl::Time now = absl::Now();
  for (const auto& [from, to, what] :
       {std::tuple{now - absl::Hours(2), now - absl::Hours(1), "has expired"},
        std::tuple{now + absl::Hours(1), now + absl::Hours(2),
                   "is not valid yet"}}) {
    const TestCertificate made =
        MakeCertificate({.not_before = from, .not_after = to}, &root_);
    EXPECT_THAT(
        Trouble({.certificate = WriteTestFile("time.pem", made.certificate),
                 .key = WriteTestFile("time.key", made.key)}),
        HasSubstr(what));
  }
}

}  // namespace
}  // namespace gemmd
