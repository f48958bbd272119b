// Everything that the client library does, over each way to a server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "gemmd/client.h"
#include "tests/integration/child_program.h"
#include "tests/support/certificates.h"
#include "tests/support/client_matrices.h"

namespace gemmd {
namespace {

using testing::ChildProgram;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

// printf '\x00\x01...\x0f''trainer.correct-horse' | sha256sum
constexpr char kToken[] = "trainer.correct-horse";
constexpr char kAccess[] =
    "trainer compute,info sha256:000102030405060708090a0b0c0d0e0f:"
    "b199e12f7d919cc958af13efea6b3c52ba4194232ea95af6b9f6364ce8218355\n"
    "batch.test compute,info certificate\n";

// What a client and its server need for one another.
struct Transport {
  const char* name;
  bool unix_socket = false;
  bool tls = false;
  bool client_certificate = false;
  bool token = false;
};

constexpr Transport kTransports[] = {
    {.name = "Tcp"},
    {.name = "Tls", .tls = true},
    {.name = "TlsWithToken", .tls = true, .token = true},
    {.name = "MutualTls", .tls = true, .client_certificate = true},
    {.name = "UnixWithToken", .unix_socket = true, .token = true},
};

// A server of messages of 1 MiB at most, and the options of its clients.
class TransportServer {
 public:
  explicit TransportServer(const Transport& transport) : name_(transport.name) {
    const std::string path =
        absl::StrCat("/tmp/gemmd_", transport.name, ".", getpid(), ".sock");
    std::vector<std::string> flags = {"--backend=cpu",
                                      "--listen=127.0.0.1:0",
                                      "--http-listen=",
                                      "--max-inline-bytes=1MiB",
                                      "--shared-memory=true",
                                      "--unix-socket=" + path,
                                      "--pinned-pool-bytes=64MiB",
                                      "--log-level=error"};
    if (transport.tls) UseTls(transport.client_certificate, &flags);
    if (transport.token || transport.client_certificate) {
      flags.push_back("--auth-token-file=" + File("access", kAccess));
    }
    if (transport.token) {
      options_.token_file = File("token", kToken);
    }
    program_ = std::make_unique<ChildProgram>(flags);
    const std::vector<std::string> lines = program_->ReadLines(1);
    if (lines.empty()) {
      program_->Wait();
      ADD_FAILURE() << program_->error;
      return;
    }
    const std::string port = lines[0].substr(lines[0].rfind(':'));
    options_.address = transport.unix_socket ? "unix:" + path
                       : transport.tls       ? "localhost" + port
                                             : "127.0.0.1" + port;
  }

  const ClientOptions& options() const { return options_; }

 private:
  void UseTls(bool mutual, std::vector<std::string>* flags) {
    const TestCertificate root =
        MakeCertificate({.common_name = "root", .authority = true});
    const TestCertificate own = MakeCertificate({}, &root);
    const std::string roots = File("root.pem", root.certificate);
    flags->push_back("--tls-cert=" + File("own.pem", own.certificate));
    flags->push_back("--tls-key=" + File("own.key", own.key));
    options_.tls = TlsOptions{.root_certificates = roots};
    if (!mutual) return;
    flags->push_back("--tls-client-ca=" + roots);
    const TestCertificate batch = MakeCertificate(
        {.common_name = "batch", .dns_names = {"batch.test"}}, &root);
    options_.tls->certificate = File("batch.pem", batch.certificate);
    options_.tls->key = File("batch.key", batch.key);
  }

  // Its own, beside those of the others.
  std::string File(const char* name, const std::string& text) const {
    return WriteTestFile(absl::StrCat(name_, "_", name), text);
  }

  const std::string name_;
  std::unique_ptr<ChildProgram> program_;
  ClientOptions options_ = {.connections = 2, .verify_fraction = 1};
};

// One server for each transport, and a client of its own for each test, which
// verifies every product that it sees.
class TransportTest : public ::testing::TestWithParam<Transport> {
 protected:
  static void TearDownTestSuite() { servers_.clear(); }

  void SetUp() override {
    server_ = &servers_.try_emplace(GetParam().name, GetParam()).first->second;
    auto client = Client::Create(server_->options());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  static inline std::map<std::string, TransportServer> servers_;
  const TransportServer* server_ = nullptr;
  std::unique_ptr<Client> client_;
};

TEST_P(TransportTest, MultipliesInlineOneByOneAndManyAtOnceAndOnStreams) {
  ClientOptions streaming = server_->options();
  streaming.stream_small_products = true;
  auto on_streams = Client::Create(streaming);
  ASSERT_TRUE(on_streams.ok()) << on_streams.status();
  const Matrix a = RandomMatrix(17, 90);
  const Matrix b = RandomMatrix(90, 33);
  const auto alone = client_->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->verified);
  constexpr int kCalls = 32;
  absl::BlockingCounter left(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    Client* const client = i % 2 == 0 ? client_.get() : on_streams->get();
    client->SgemmAsync({.a = a.view(), .b = b.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         EXPECT_TRUE(answer.ok()) << answer.status();
                         if (answer.ok()) {
                           EXPECT_TRUE(SameBits(answer->c, alone->c));
                         }
                         left.DecrementCount();
                       });
  }
  left.Wait();
}

TEST_P(TransportTest, MultipliesWhatFitsInNoMessage) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{600, 500, 20},  // the answer
                         {5, 6, 60'000},                        // operands
                         {600, 520, 510}}) {                    // all
    const Matrix a = RandomMatrix(m, k);
    const Matrix b = RandomMatrix(k, n);
    const auto answer = client_->Sgemm({.a = a.view(), .b = b.view()});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->verified);
  }
}

TEST_P(TransportTest, KeepsListsAndDropsMatrices) {
  const Matrix x = RandomMatrix(1'501, 900);  // 5 MiB, over both connections
  auto resident = client_->Upload(x.view(), {.id = "x"});
  ASSERT_TRUE(resident.ok()) << resident.status();
  const auto product = client_->Sgemm({.a = RandomMatrix(1, 1'501).view(),
                                       .b = *resident,
                                       .resident_output = ResidentOutput{}});
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ(product->resident.cols(), 900);
  EXPECT_TRUE(client_->Download(product->resident).ok());
  const auto back = client_->Download(*resident);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(SameBits(*back, x));
  const auto all = client_->ListMatrices();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, Contains(Field(&ResidentMatrix::Info::id, "x")));
  EXPECT_TRUE(client_->FindMatrix("x").ok());
  const absl::Status deleted = client_->DeleteMatrix("x");
  EXPECT_TRUE(deleted.ok()) << deleted;
  EXPECT_TRUE(absl::IsNotFound(client_->DeleteMatrix("x")));
}

TEST_P(TransportTest, TellsWhatTheServerIsAndHowItFeels) {
  const auto info = client_->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->limits.max_inline_bytes, 1u << 20);
  const auto health = client_->Health();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, ServerHealth::kServing);
}

TEST_P(TransportTest, SharesMemoryOverAUnixSocketAndRefusesElsewhere) {
  const auto memory = client_->ShareMemory(1 << 20);
  if (!GetParam().unix_socket) {
    EXPECT_TRUE(absl::IsFailedPrecondition(memory.status()));
    EXPECT_THAT(std::string(memory.status().message()),
                HasSubstr("unix socket"));
    return;
  }
  ASSERT_TRUE(memory.ok()) << memory.status();
  const Matrix a = RandomMatrix(40, 50);
  const MutableMatrixView shared_a = memory->Matrix(40, 50, 0);
  const MutableMatrixView shared_c = memory->Matrix(40, 40, 4 * 40 * 50);
  std::memcpy(shared_a.data, a.data(), 4 * 40 * 50);
  const auto inlined =
      client_->Sgemm({.a = a.view(), .b = a.view(), .transpose_b = true});
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  const auto shared = client_->Sgemm(
      {.a = shared_a, .b = shared_a, .transpose_b = true, .output = shared_c});
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_TRUE(SameBits(shared_c.data, inlined->c.data(), 40 * 40));
}

// Without what it asks for, the server says no to all but health.
TEST_P(TransportTest, RefusesAClientThatDoesNotShowWhoItIs) {
  const Transport& transport = GetParam();
  if (!transport.token && !transport.client_certificate) {
    GTEST_SKIP() << "this server asks nobody";
  }
  ClientOptions options = server_->options();
  options.token_file.clear();
  options.retry.max_attempts = 1;
  if (options.tls.has_value()) {
    options.tls =
        TlsOptions{.root_certificates = options.tls->root_certificates};
  }
  const auto client = Client::Create(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::StatusCode refusal = transport.client_certificate
                                       ? absl::StatusCode::kUnavailable
                                       : absl::StatusCode::kUnauthenticated;
  const Matrix a = RandomMatrix(3, 3);
  EXPECT_EQ((*client)->Sgemm({.a = a.view(), .b = a.view()}).status().code(),
            refusal);
  EXPECT_EQ((*client)->Upload(a.view()).status().code(), refusal);
  EXPECT_EQ((*client)->ListMatrices().status().code(), refusal);
  EXPECT_EQ((*client)->GetServerInfo().status().code(), refusal);
  EXPECT_EQ((*client)->Health().ok(), !transport.client_certificate);
}

INSTANTIATE_TEST_SUITE_P(Ways, TransportTest, ::testing::ValuesIn(kTransports),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace gemmd
