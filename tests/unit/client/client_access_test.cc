// Tokens, TLS and the files of both.

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/client.h"
#include "tests/support/certificates.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kToken[] = "trainer.correct-horse-battery";

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

absl::Status CreationOf(const ClientOptions& options) {
  return Client::Create(options).status();
}

TEST(ClientTokenTest, GoesWithEveryCall) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address(), .token = kToken});
  const Matrix a = RandomMatrix(3, 3);
  ASSERT_TRUE(client->Sgemm({.a = a.view(), .b = a.view()}).ok());
  {
    const auto x = client->Upload(a.view());
    ASSERT_TRUE(x.ok()) << x.status();
    EXPECT_TRUE(client->Download(*x).ok());
    EXPECT_TRUE(client->ListMatrices().ok());
  }
  EXPECT_TRUE(client->GetServerInfo().ok());
  EXPECT_TRUE(client->Health().ok());
  // The handle's end drops its matrix, some time after.
  EXPECT_TRUE(Eventually(
      [&] { return server.authorizations().contains("DeleteMatrix"); }));
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  EXPECT_THAT(server.authorizations(),
              UnorderedElementsAre(
                  Pair("Sgemm", bearer), Pair("UploadMatrix", bearer),
                  Pair("DownloadMatrix", bearer), Pair("ListMatrices", bearer),
                  Pair("DeleteMatrix", bearer), Pair("GetServerInfo", bearer),
                  Pair("Check", bearer)));
}

// Not by a proxy either, which would be on the way of a token in plaintext.
TEST(ClientTokenTest, WhatIsForThisHostGoesStraightThere) {
  FakeServer server(Answer);
  ASSERT_EQ(setenv("grpc_proxy", "http://127.0.0.1:1", /*overwrite=*/1), 0);
  const auto client = NewClient({.address = server.address(),
                                 .token = kToken,
                                 .timeout = absl::Seconds(20)});
  const auto health = client->Health();
  unsetenv("grpc_proxy");
  EXPECT_TRUE(health.ok()) << health.status();
}

TEST(ClientTokenTest, AChangedFileCountsFromTheNextCallOn) {
  FakeServer server(Answer);
  const std::string path = WriteTestFile("token", "first-token\n");
  const auto client =
      NewClient({.address = server.address(), .token_file = path});
  const auto sent = [&] {
    EXPECT_TRUE(client->Health().ok());
    return server.authorizations()["Check"];
  };
  EXPECT_EQ(sent(), "Bearer first-token");
  WriteTestFile("token", "  second-token  ");
  EXPECT_EQ(sent(), "Bearer second-token");
  WriteTestFile("token", "no token at all");
  EXPECT_EQ(sent(), "Bearer second-token");
  std::filesystem::remove(path);
  EXPECT_EQ(sent(), "Bearer second-token");
  WriteTestFile("token", "third-token");
  EXPECT_EQ(sent(), "Bearer third-token");
}

TEST(ClientTokenTest, WhatIsNoTokenIsRefusedAndNotRepeated) {
  const std::string path = WriteTestFile("bad_token", "");
  for (const std::string& text :
       {std::string(), std::string(" \n"), std::string("horse battery"),
        std::string("horse\nbattery\n"), std::string("hor\0se", 6),
        std::string("pf\xc3\xa4hrd"), std::string(5000, 'x')}) {
    WriteTestFile("bad_token", text);
    const absl::Status status = CreationOf({.token_file = path});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr(path), Not(HasSubstr("horse")),
                                       Not(HasSubstr("\n"))));
    if (text.empty()) continue;
    EXPECT_TRUE(absl::IsInvalidArgument(CreationOf({.token = text})));
  }
  std::filesystem::remove(path);
  EXPECT_THAT(Message(CreationOf({.token_file = path})),
              AllOf(HasSubstr(path), HasSubstr("No such file")));
  EXPECT_THAT(Message(CreationOf({.token_file = "/tmp"})),
              HasSubstr("not a regular file"));
  EXPECT_THAT(Message(CreationOf({.token = kToken, .token_file = path})),
              HasSubstr("give one of them"));
}

TEST(ClientTokenTest, IsNotSentInPlaintextToAnotherHost) {
  for (const char* address :
       {"gemm.example.com:50051", "10.0.0.7:50051", "[fe80::1]:50051",
        "127.example.com:50051", "localhost.example.com:1",
        "dns:gemm.example.com:50051", "dns:///localhost.example.com:50051",
        "dns://10.0.0.7/localhost:50051", "ipv4:10.0.0.7:50051",
        "ipv4:127.0.0.1:50051,10.0.0.7:50051", "ipv6:[fe80::1]:50051",
        "ipv6:[::1]:50051,[fe80::1]:50051", "ipv6:[::ffff:10.0.0.7]:50051",
        "127.0.0.1.example.com:50051"}) {
    const absl::Status status =
        CreationOf({.address = address, .token = kToken});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_THAT(Message(status), AllOf(HasSubstr(address), HasSubstr("TLS"),
                                       Not(HasSubstr("horse"))));
    EXPECT_TRUE(CreationOf({.address = address,
                            .token = kToken,
                            .allow_plaintext_token = true})
                    .ok());
    EXPECT_TRUE(
        CreationOf({.address = address, .tls = TlsOptions{}, .token = kToken})
            .ok());
  }
  for (const char* address :
       {"127.0.0.1:50051", "127.1.2.3:1", "[::1]:50051", "localhost:50051",
        "LocalHost:50051", "dns:localhost:50051", "dns:///localhost:50051",
        "dns:///127.0.0.1:50051", "dns:///[::1]:50051", "dns:///localhost",
        "ipv4:127.0.0.1:50051", "ipv4:///127.0.0.1:50051",
        "ipv4:127.0.0.1:50051,127.0.0.2:50051", "ipv6:[::1]:50051",
        "ipv6:[::1]:50051,[::1]:2", "ipv6:[::ffff:127.0.0.1]:50051",
        "[0:0:0:0:0:0:0:1]:50051", "unix:/tmp/x", "unix:///tmp/x"}) {
    EXPECT_TRUE(CreationOf({.address = address, .token = kToken}).ok())
        << address;
  }
}

// A server's certificates, and a server that has them.
class ClientTlsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<grpc::ServerCredentials> Serving(
      const TestCertificate& certificate) {
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs = {{certificate.key, certificate.certificate}};
    return grpc::SslServerCredentials(options);
  }

  // What a client with these options is told, in one line.
  static absl::Status Ask(const FakeServer& server, TlsOptions tls,
                          const std::string& host = "localhost") {
    const std::string port =
        server.address().substr(server.address().rfind(':'));
    const auto client = NewClient({.address = host + port,
                                   .tls = std::move(tls),
                                   .retry = QuickRetries()});
    return client->Health().status();
  }

  const TestCertificate root_ =
      MakeCertificate({.common_name = "root", .authority = true});
  const std::string root_file_ = WriteTestFile("root.pem", root_.certificate);
};

TEST_F(ClientTlsTest, TellsWhyAServerIsNotTrusted) {
  const TestCertificate other =
      MakeCertificate({.common_name = "other", .authority = true});
  const std::string other_file = WriteTestFile("other.pem", other.certificate);
  FakeServer good(Answer, "127.0.0.1:0", Serving(MakeCertificate({}, &root_)));
  EXPECT_TRUE(Ask(good, {.root_certificates = root_file_}).ok());
  EXPECT_TRUE(Ask(good,
                  {.root_certificates = root_file_, .server_name = "localhost"},
                  "127.0.0.1")
                  .ok());

  absl::Status status = Ask(good, {.root_certificates = other_file});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("not trusted"), HasSubstr(other_file)));

  status = Ask(good, {.root_certificates = root_file_}, "127.0.0.1");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("127.0.0.1"), HasSubstr("another name")));

  FakeServer late(
      Answer, "127.0.0.1:0",
      Serving(MakeCertificate({.not_before = absl::Now() - absl::Hours(2),
                               .not_after = absl::Now() - absl::Hours(1)},
                              &root_)));
  status = Ask(late, {.root_certificates = root_file_});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("expired"));
}

TEST_F(ClientTlsTest, TellsWhenOneSideSpeaksPlaintext) {
  FakeServer plain(Answer);
  absl::Status status = Ask(plain, {.root_certificates = root_file_});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("does not speak TLS"));

  FakeServer tls(Answer, "127.0.0.1:0", Serving(MakeCertificate({}, &root_)));
  const auto client =
      NewClient({.address = tls.address(), .retry = QuickRetries()});
  status = client->Health().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("TLS"));
}

TEST_F(ClientTlsTest, FollowsItsFiles) {
  FakeServer server(Answer, "127.0.0.1:0",
                    Serving(MakeCertificate({}, &root_)));
  const std::string roots = WriteTestFile(
      "followed.pem",
      MakeCertificate({.common_name = "old", .authority = true}).certificate);
  const auto client =
      NewClient({.address = "localhost" + server.address().substr(
                                              server.address().rfind(':')),
                 .tls = TlsOptions{.root_certificates = roots},
                 .retry = QuickRetries()});
  EXPECT_FALSE(client->Health().ok());
  WriteTestFile("followed.pem", "not PEM\n");
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(Message(client->Health().status()),
                             roots + " holds no certificate");
  }));
  WriteTestFile("followed.pem", root_.certificate);
  EXPECT_TRUE(Eventually([&] { return client->Health().ok(); }));
}

// A server that takes clients of root_, and remembers who asked last.
class MutualTlsTest : public ClientTlsTest {
 protected:
  FakeServer::Handler RememberAndAnswer() {
    return [this](grpc::ServerContext& context, const v1::SgemmRequest& request,
                  v1::SgemmResponse* response) {
      {
        std::lock_guard<std::mutex> lock(mu_);
        const auto names = context.auth_context()->GetPeerIdentity();
        last_ =
            names.empty() ? "" : std::string(names[0].data(), names[0].size());
      }
      return Answer(context, request, response);
    };
  }

  std::shared_ptr<grpc::ServerCredentials> AskingForCertificates() {
    const TestCertificate own = MakeCertificate({}, &root_);
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_key_cert_pairs = {{own.key, own.certificate}};
    options.pem_root_certs = root_.certificate;
    return grpc::SslServerCredentials(options);
  }

  std::string last() {
    std::lock_guard<std::mutex> lock(mu_);
    return last_;
  }

  const TestCertificate one_ = MakeCertificate(
      {.common_name = "one", .dns_names = {"one.test"}}, &root_);
  const TestCertificate two_ = MakeCertificate(
      {.common_name = "two", .dns_names = {"two.test"}}, &root_);

 private:
  std::mutex mu_;
  std::string last_;  // guarded by mu_
};

// With each replaced on its own, and no call failing for it.
TEST_F(MutualTlsTest, CallsGoOverToANewCertificateOnceItsKeyIsThere) {
  FakeServer server(RememberAndAnswer(), "127.0.0.1:0",
                    AskingForCertificates());
  const auto client = NewClient(
      {.address = server.address(),
       .tls =
           TlsOptions{.root_certificates = root_file_,
                      .certificate = WriteTestFile("own.pem", one_.certificate),
                      .key = WriteTestFile("own.key", one_.key),
                      .server_name = "localhost"},
       .retry = {.max_attempts = 1}});
  const Matrix a = RandomMatrix(3, 3);
  int failed = 0;
  const auto asked_as = [&](const std::string& name) {
    if (!client->Sgemm({.a = a.view(), .b = a.view()}).ok()) ++failed;
    return last() == name;
  };
  EXPECT_TRUE(asked_as("one.test"));
  WriteTestFile("own.pem", two_.certificate);
  // Long enough for the client to see half of the pair.
  const absl::Time end = absl::Now() + absl::Seconds(1.5);
  while (absl::Now() < end) EXPECT_TRUE(asked_as("one.test"));
  WriteTestFile("own.key", two_.key);
  EXPECT_TRUE(Eventually([&] { return asked_as("two.test"); }));
  EXPECT_EQ(failed, 0);
}

TEST_F(ClientTlsTest, FilesThatCannotBeUsedAreRefused) {
  const TestCertificate own = MakeCertificate({.common_name = "me"}, &root_);
  const std::string certificate = WriteTestFile("me.pem", own.certificate);
  const std::string key = WriteTestFile("me.key", own.key);
  const std::string garbage = WriteTestFile("garbage.pem", "not PEM\n");
  const TestCertificate late =
      MakeCertificate({.not_before = absl::Now() - absl::Hours(2),
                       .not_after = absl::Now() - absl::Hours(1)},
                      &root_);
  const auto refusal = [](const TlsOptions& tls) {
    const absl::Status status = CreationOf({.tls = tls});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), Not(HasSubstr("\n")));
    return Message(status);
  };
  EXPECT_TRUE(CreationOf({.tls = TlsOptions{.root_certificates = root_file_,
                                            .certificate = certificate,
                                            .key = key}})
                  .ok());
  EXPECT_THAT(refusal({.root_certificates = "/no/such.pem"}),
              AllOf(HasSubstr("/no/such.pem"), HasSubstr("No such file")));
  EXPECT_THAT(refusal({.root_certificates = garbage}),
              AllOf(HasSubstr(garbage), HasSubstr("no certificate")));
  EXPECT_THAT(refusal({.certificate = certificate}), HasSubstr("key"));
  EXPECT_THAT(refusal({.key = key}), HasSubstr("certificate is missing"));
  EXPECT_THAT(refusal({.certificate = certificate, .key = garbage}),
              AllOf(HasSubstr(garbage), HasSubstr("no private key")));
  EXPECT_THAT(
      refusal({.certificate = root_file_, .key = key}),
      AllOf(HasSubstr(key), HasSubstr("not the key of the certificate")));
  EXPECT_THAT(
      refusal({.certificate = WriteTestFile("late.pem", late.certificate),
               .key = WriteTestFile("late.key", late.key)}),
      HasSubstr("expired"));
  EXPECT_THAT(
      Message(CreationOf({.address = "unix:/tmp/x", .tls = TlsOptions{}})),
      HasSubstr("unix socket"));
}

}  // namespace
}  // namespace gemmd
