// Clients that speak something else, too much, or nothing at all: each is
// refused, and the server goes on serving the others.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/child_program.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::ChildProgram;
using testing::ConnectLoopback;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HttpGet;
using testing::RunningServer;

grpc::Status Multiply(const std::shared_ptr<grpc::Channel>& channel,
                      size_t metadata_bytes = 0) {
  v1::GemmService::Stub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  if (metadata_bytes > 0) {
    context.AddMetadata("x-large", std::string(metadata_bytes, 'a'));
  }
  v1::SgemmResponse response;
  return stub.Sgemm(&context, testing::RandomRequest(3, 4, 5, 1), &response);
}

std::shared_ptr<grpc::Channel> ConnectTo(int port) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials(), own);
}

TEST(BadPeersTest, AMebibyteOfMetadataIsRefused) {
  RunningServer server;
  const grpc::Status status = Multiply(server.channel(), size_t{1} << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << status.error_message();
  // gRPC ends that connection too.
  EXPECT_TRUE(Multiply(server.Connect()).ok());
}

TEST(BadPeersTest, Http1OnTheGrpcPortIsClosed) {
  RunningServer server;
  // Returns when the server has closed the connection.
  EXPECT_NE(HttpGet(server->grpc_port(), "/metrics").status, 200);
  EXPECT_TRUE(Multiply(server.channel()).ok());
}

TEST(BadPeersTest, GrpcOnTheHttpPortIsUnavailable) {
  RunningServer server;
  EXPECT_EQ(Multiply(ConnectTo(server->http_port())).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(HttpGet(server->http_port(), "/readyz").status, 200);
}

TEST(BadPeersTest, MetricsAreTextToABrowser) {
  RunningServer server;
  const auto metrics = HttpGet(server->http_port(), "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(
      metrics.headers,
      HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
}

#ifdef GEMMD_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// gemmd in a process of its own, so that both have their file descriptors.
class BadCrowdTest : public ::testing::Test {
 protected:
  BadCrowdTest() {
    const auto lines = program_.ReadLines(2);
    EXPECT_EQ(lines.size(), 2u) << program_.error;
    if (lines.size() == 2)
      port_ = std::stoi(lines[0].substr(lines[0].rfind(':') + 1));
  }
  ~BadCrowdTest() override { Disperse(); }

  void Gather(int count) {
    for (int i = 0; i < count; ++i) {
      const int fd = ConnectLoopback(port_);
      ASSERT_GE(fd, 0) << "after " << i;
      crowd_.push_back(fd);
    }
  }
  void Disperse() {
    for (const int fd : crowd_) close(fd);
    crowd_.clear();
  }

  int Descriptors() const {
    using std::filesystem::directory_iterator;
    return static_cast<int>(std::distance(
        directory_iterator(absl::StrCat("/proc/", program_.pid(), "/fd")),
        directory_iterator()));
  }
  int64_t ResidentKib() const {
    std::ifstream status(absl::StrCat("/proc/", program_.pid(), "/status"));
    for (std::string word; status >> word;) {
      int64_t kib;
      if (word == "VmRSS:" && status >> kib) return kib;
    }
    return 0;
  }

  ChildProgram program_{{"--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0",
                         "--backend=cpu", "--pinned-pool-bytes=64MiB"}};
  int port_ = 0;
  std::vector<int> crowd_;
};

TEST_F(BadCrowdTest, TenThousandIdleConnectionsCostLittleAndStopNobody) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  // As many as this process and the server may have.
  const int count = static_cast<int>(std::min<rlim_t>(
      10'000, limit.rlim_max - std::min<rlim_t>(limit.rlim_max, 300)));
  std::printf("%d idle connections\n", count);
  ASSERT_TRUE(Multiply(ConnectTo(port_)).ok());
  const int64_t before = ResidentKib();
  Gather(count);
  ASSERT_TRUE(Eventually([&] { return Descriptors() >= count; }));
  const grpc::Status status = Multiply(ConnectTo(port_));
  EXPECT_TRUE(status.ok()) << status.error_message();
  // 15 KiB each were seen; with AddressSanitizer, which keeps what is freed,
  // 81.
  const int64_t kib_each = kSanitized ? 256 : 64;
  EXPECT_LT(ResidentKib() - before, kib_each * count + 65'536);
  Disperse();
  EXPECT_TRUE(Multiply(ConnectTo(port_)).ok());
}

// gRPC does not take up a port again that it could not accept on.
TEST_F(BadCrowdTest, WithoutFileDescriptorsItEndsAndSaysSo) {
  if (kSanitized) {
    GTEST_SKIP() << "LeakSanitizer opens files at the end of a program";
  }
  const rlim_t limit = static_cast<rlim_t>(Descriptors()) + 20;
  const rlimit few = {limit, limit};
  ASSERT_EQ(prlimit(program_.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  // Until nobody listens any more, or enough for that.
  for (int i = 0; i < 100; ++i) {
    const int fd = ConnectLoopback(port_);
    if (fd < 0) break;
    crowd_.push_back(fd);
  }
  EXPECT_EQ(program_.Wait(), 3);
  EXPECT_THAT(program_.error, HasSubstr("ulimit -Hn"));
}

}  // namespace
}  // namespace gemmd
