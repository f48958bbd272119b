// Who is let in: TLS, client certificates, tokens and roles, through a whole
// server.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"
#include "tests/support/certificates.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RandomRequest;
using testing::RawCall;
using testing::RunningServer;
using testing::TestOptions;

// printf '\x00\x01...\x0f''NAME.correct-horse' | sha256sum
constexpr char kSalt[] = "000102030405060708090a0b0c0d0e0f";
constexpr char kTrainerHash[] =
    "b199e12f7d919cc958af13efea6b3c52ba4194232ea95af6b9f6364ce8218355";
constexpr char kTrainer[] = "trainer.correct-horse";
constexpr char kWatcherHash[] =
    "0986179bdbf95b546250c2e4f740a32ee777803f6a53f776312c0e76536d4f0a";
constexpr char kWatcher[] = "watcher.correct-horse";

std::string AccessFileText() {
  return absl::StrCat("trainer compute,info sha256:", kSalt, ":", kTrainerHash,
                      "\nwatcher info sha256:", kSalt, ":", kWatcherHash,
                      "\nbatch.test compute certificate\n");
}

// The certificates of a small organisation.
struct Pki {
  TestCertificate root =
      MakeCertificate({.common_name = "root", .authority = true});
  TestCertificate server = MakeCertificate({}, &root);
  TestCertificate client = MakeCertificate(
      {.common_name = "batch", .dns_names = {"batch.test"}}, &root);
};

class ServerAccessTest : public ::testing::Test {
 protected:
  // Of a server with TLS; with client certificates if `mutual`.
  ServerOptions TlsOptions(bool mutual) const {
    ServerOptions options = TestOptions();
    options.tls_cert = WriteTestFile("server.pem", pki_.server.certificate);
    options.tls_key = WriteTestFile("server.key", pki_.server.key);
    if (mutual) {
      options.tls_client_ca = WriteTestFile("root.pem", pki_.root.certificate);
    }
    return options;
  }

  static ServerOptions TokenOptions() {
    ServerOptions options = TestOptions();
    options.auth_token_file = WriteTestFile("access", AccessFileText());
    return options;
  }

  const Pki pki_ = {};
};

grpc::SslCredentialsOptions Trusting(const TestCertificate& root) {
  return {.pem_root_certs = root.certificate};
}

// One product; over a connection of its own where `credentials` are given.
grpc::Status Multiply(const std::shared_ptr<grpc::Channel>& channel,
                      absl::string_view token = "") {
  v1::GemmService::Stub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(10));
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
  v1::SgemmResponse response;
  return stub.Sgemm(&context, RandomRequest(3, 4, 5, 1), &response);
}

// By address: Debian's c-ares 1.18 loses ten bytes each time that it looks up
// "localhost", the name in the server's certificate.
std::shared_ptr<grpc::Channel> ConnectTls(
    int port, const grpc::SslCredentialsOptions& options) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  own.SetSslTargetNameOverride("localhost");
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::SslCredentials(options), own);
}

grpc::Status GetInfo(RunningServer& server, absl::string_view token) {
  grpc::ClientContext context;
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
  v1::GetServerInfoResponse response;
  return server.gemm().GetServerInfo(&context, {}, &response);
}

TEST_F(ServerAccessTest, MultipliesOverTls) {
  RunningServer server(TlsOptions(/*mutual=*/false));
  const int port = server->grpc_port();
  const grpc::Status status = Multiply(ConnectTls(port, Trusting(pki_.root)));
  EXPECT_TRUE(status.ok()) << status.error_message();
  // Plaintext, and a client that trusts somebody else, are kept out.
  EXPECT_EQ(Multiply(server.channel()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const TestCertificate other =
      MakeCertificate({.common_name = "other", .authority = true});
  EXPECT_EQ(Multiply(ConnectTls(port, Trusting(other))).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // So is the server from a client that wants another one.
  grpc::ChannelArguments another_name;
  another_name.SetSslTargetNameOverride("elsewhere.test");
  EXPECT_EQ(
      Multiply(grpc::CreateCustomChannel(
                   absl::StrCat("localhost:", port),
                   grpc::SslCredentials(Trusting(pki_.root)), another_name))
          .error_code(),
      grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Multiply(ConnectTls(port, Trusting(pki_.root))).ok());
}

TEST_F(ServerAccessTest, WantsACertificateOfItsRootsWithMutualTls) {
  RunningServer server(TlsOptions(/*mutual=*/true));
  const int port = server->grpc_port();
  grpc::SslCredentialsOptions options = Trusting(pki_.root);
  EXPECT_EQ(Multiply(ConnectTls(port, options)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  options.pem_private_key = pki_.client.key;
  options.pem_cert_chain = pki_.client.certificate;
  const grpc::Status status = Multiply(ConnectTls(port, options));
  EXPECT_TRUE(status.ok()) << status.error_message();
  const TestCertificate stranger = MakeCertificate({.common_name = "batch"});
  options.pem_private_key = stranger.key;
  options.pem_cert_chain = stranger.certificate;
  EXPECT_EQ(Multiply(ConnectTls(port, options)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const TestCertificate late =
      MakeCertificate({.not_before = absl::Now() - absl::Hours(2),
                       .not_after = absl::Now() - absl::Hours(1)},
                      &pki_.root);
  options.pem_private_key = late.key;
  options.pem_cert_chain = late.certificate;
  EXPECT_EQ(Multiply(ConnectTls(port, options)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

// Products over a new connection each, on a thread of its own.
class NewConnections {
 public:
  NewConnections(int port, const grpc::SslCredentialsOptions& credentials)
      : thread_([this, port, credentials] {
          while (!stop_) {
            const grpc::Status status = Multiply(ConnectTls(port, credentials));
            if (!status.ok()) ++failed_;
            ++ended_;
          }
        }) {}
  ~NewConnections() {
    stop_ = true;
    thread_.join();
  }

  int ended() const { return ended_; }
  int failed() const { return failed_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> ended_{0};
  std::atomic<int> failed_{0};
  std::thread thread_;
};

// The two files change one after the other, 3 s apart, as a tool that knows
// nothing of each other's does; and the connection that is there stays.
TEST_F(ServerAccessTest, TakesANewCertificateWithoutLosingARequest) {
  const TestCertificate next_root =
      MakeCertificate({.common_name = "next root", .authority = true});
  const TestCertificate next = MakeCertificate({}, &next_root);
  RunningServer server(TlsOptions(/*mutual=*/false));
  const int port = server->grpc_port();
  const auto old_connection = ConnectTls(port, Trusting(pki_.root));
  EXPECT_TRUE(Multiply(old_connection).ok());
  grpc::SslCredentialsOptions both = Trusting(pki_.root);
  both.pem_root_certs += next_root.certificate;
  NewConnections load(port, both);
  WriteTestFile("server.pem", next.certificate);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_TRUE(Multiply(ConnectTls(port, Trusting(pki_.root))).ok());
  WriteTestFile("server.key", next.key);
  EXPECT_TRUE(testing::Eventually(
      [&] { return Multiply(ConnectTls(port, Trusting(next_root))).ok(); }));
  EXPECT_FALSE(Multiply(ConnectTls(port, Trusting(pki_.root))).ok());
  EXPECT_TRUE(Multiply(old_connection).ok());
  EXPECT_GT(load.ended(), 2);
  EXPECT_EQ(load.failed(), 0) << "of " << load.ended();
}

TEST_F(ServerAccessTest, TakesNewRootsOfClients) {
  const TestCertificate next_root =
      MakeCertificate({.common_name = "next root", .authority = true});
  const TestCertificate next_client =
      MakeCertificate({.common_name = "batch"}, &next_root);
  RunningServer server(TlsOptions(/*mutual=*/true));
  const int port = server->grpc_port();
  grpc::SslCredentialsOptions old_client = Trusting(pki_.root);
  old_client.pem_private_key = pki_.client.key;
  old_client.pem_cert_chain = pki_.client.certificate;
  grpc::SslCredentialsOptions new_client = Trusting(pki_.root);
  new_client.pem_private_key = next_client.key;
  new_client.pem_cert_chain = next_client.certificate;
  EXPECT_TRUE(Multiply(ConnectTls(port, old_client)).ok());
  EXPECT_FALSE(Multiply(ConnectTls(port, new_client)).ok());
  WriteTestFile("root.pem", next_root.certificate);
  EXPECT_TRUE(testing::Eventually(
      [&] { return Multiply(ConnectTls(port, new_client)).ok(); }));
  EXPECT_FALSE(Multiply(ConnectTls(port, old_client)).ok());
}

TEST_F(ServerAccessTest, LetsInWhoHasAListedTokenAndItsRole) {
  RunningServer server(TokenOptions());
  grpc::Status status = Multiply(server.channel(), kTrainer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(GetInfo(server, kTrainer).ok());
  EXPECT_TRUE(GetInfo(server, kWatcher).ok());

  status = Multiply(server.channel(), kWatcher);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("watcher"), HasSubstr("has the role info"),
                    HasSubstr("lacks the role compute")));

  status = Multiply(server.channel());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("Bearer TOKEN"));
  for (const char* wrong : {"trainer.wrong-horse", "nobody.correct-horse"}) {
    status = Multiply(server.channel(), wrong);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), Not(HasSubstr("horse")));
  }
  EXPECT_EQ(GetInfo(server, "").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(ServerAccessTest, ChecksEveryMethodAndLeavesHealthOpen) {
  RunningServer server(TokenOptions());
  grpc::ClientContext health;
  grpc::health::v1::HealthCheckResponse serving;
  EXPECT_TRUE(server.health().Check(&health, {}, &serving).ok());
  for (const auto* method :
       {"Sgemm", "ListMatrices", "DeleteMatrix", "GetServerInfo"}) {
    EXPECT_EQ(RawCall(server.channel(),
                      absl::StrCat("/gemmd.v1.GemmService/", method), "")
                  .error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << method;
  }
  {
    grpc::ClientContext context;
    const auto stream = server.gemm().SgemmStream(&context);
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    v1::UploadMatrixResponse response;
    const auto stream = server.gemm().UploadMatrix(&context, &response);
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    const auto stream = server.gemm().DownloadMatrix(&context, {});
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_F(ServerAccessTest, KnowsAListedCertificateAsItsOwner) {
  ServerOptions options = TlsOptions(/*mutual=*/true);
  options.auth_token_file = WriteTestFile("access", AccessFileText());
  RunningServer server(options);
  grpc::SslCredentialsOptions credentials = Trusting(pki_.root);
  credentials.pem_private_key = pki_.client.key;
  credentials.pem_cert_chain = pki_.client.certificate;
  const auto channel = ConnectTls(server->grpc_port(), credentials);
  const grpc::Status status = Multiply(channel);
  EXPECT_TRUE(status.ok()) << status.error_message();
  // A token beats it.
  EXPECT_EQ(Multiply(channel, kWatcher).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  const TestCertificate unlisted = MakeCertificate(
      {.common_name = "other", .dns_names = {"other.test"}}, &pki_.root);
  credentials.pem_private_key = unlisted.key;
  credentials.pem_cert_chain = unlisted.certificate;
  EXPECT_EQ(Multiply(ConnectTls(server->grpc_port(), credentials)).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(ServerAccessTest, ReadsItsTokensAnewAndKeepsThemWhenTheyAreBad) {
  RunningServer server(TokenOptions());
  EXPECT_TRUE(Multiply(server.channel(), kTrainer).ok());
  WriteTestFile("access", "");
  server->Reload("error");
  EXPECT_TRUE(Multiply(server.channel(), kTrainer).ok());
  WriteTestFile("access", absl::StrCat("watcher compute sha256:", kSalt, ":",
                                       kWatcherHash, "\n"));
  server->Reload("error");
  EXPECT_EQ(Multiply(server.channel(), kTrainer).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Multiply(server.channel(), kWatcher).ok());
}

TEST_F(ServerAccessTest, AnOpenStreamEndsWithTheNameOfItsClient) {
  RunningServer server(TokenOptions());
  grpc::ClientContext context;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", kTrainer));
  const auto stream = server.gemm().SgemmStream(&context);
  const auto multiply = [&](uint64_t sequence) {
    v1::SgemmStreamRequest item;
    item.set_sequence(sequence);
    *item.mutable_request() = RandomRequest(5, 6, 7, sequence);
    v1::SgemmStreamResponse answer;
    return stream->Write(item) && stream->Read(&answer) &&
           answer.sequence() == sequence && answer.has_response();
  };
  EXPECT_TRUE(multiply(1));
  // Read anew, with the same name in it.
  WriteTestFile("access", AccessFileText() + "# the same\n");
  server->Reload("error");
  EXPECT_TRUE(multiply(2));
  WriteTestFile("access", absl::StrCat("watcher compute sha256:", kSalt, ":",
                                       kWatcherHash, "\n"));
  server->Reload("error");
  EXPECT_FALSE(multiply(3));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace gemmd
