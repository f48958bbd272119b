// Products on memory that a client of the same host shares.

#include "proto/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <future>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/rpc/matrix_fixture.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr size_t kRegionBytes = 1 << 20;

int SealedMemfd(size_t bytes, int seals = F_SEAL_SHRINK) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

bool SameBytes(const void* x, const void* y, size_t bytes) {
  return std::memcmp(x, y, bytes) == 0;
}

int ConnectTo(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return -1;
  }
  return fd;
}

void SendRequest(int fd, const void* data, size_t size,
                 const std::vector<int>& descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  iovec piece = {const_cast<void*>(data), size};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(c), descriptors.data(), bytes);
  }
  EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(size));
}

// Empty when the server closed the connection without a word.
std::optional<RegionReply> ReadReply(int fd) {
  RegionReply reply;
  const ssize_t got = recv(fd, &reply, sizeof(reply), MSG_WAITALL);
  if (got != sizeof(reply)) return std::nullopt;
  return reply;
}

// A client's region, mapped.
struct Region {
  explicit Region(const std::string& path, size_t bytes = kRegionBytes)
      : memfd(SealedMemfd(bytes)),
        fd(ConnectTo(path)),
        bytes(bytes),
        floats(static_cast<float*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED, memfd, 0))) {
    const RegionRequest request = {.bytes = bytes};
    SendRequest(fd, &request, sizeof(request), {memfd});
    const auto reply = ReadReply(fd);
    EXPECT_TRUE(reply.has_value() && reply->code == 0);
    if (reply.has_value()) {
      id.assign(reinterpret_cast<const char*>(reply->region_id),
                kRegionIdBytes);
    }
  }
  ~Region() {
    Close();
    munmap(floats, bytes);
    close(memfd);
  }
  void Close() {
    if (fd >= 0) close(fd);
    fd = -1;
  }

  const int memfd;
  int fd;
  const size_t bytes;
  float* const floats;
  std::string id;
};

class SharedMemoryTest : public MatrixFixture {
 protected:
  SharedMemoryTest() {
    std::string path = testing::TempDir() + "/gemmd_shm_XXXXXX";
    directory_ = mkdtemp(path.data());
    RpcOptions options;
    options.unix_socket = directory_ + "/socket";
    options.shared_memory = true;
    StartServer(options);
    tcp_ = std::move(stub_);
    channel_ = Connect("unix:" + directory_ + "/socket");
    stub_ = v1::GemmService::NewStub(channel_);
  }
  ~SharedMemoryTest() override {
    server_.reset();
    unlink((directory_ + "/socket").c_str());
    rmdir(directory_.c_str());
  }

  std::string SidePath() const { return directory_ + "/socket.shm"; }

  // Puts the operand's numbers at `offset`, with rows `ld` apart.
  static void Share(v1::Operand& operand, Region& region, size_t offset,
                    size_t ld = 0) {
    const size_t rows = operand.rows(), cols = operand.cols();
    if (ld == 0) ld = cols;
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(region.floats + offset / 4 + i * ld,
                  operand.data().data() + i * cols * 4, cols * 4);
    }
    operand.set_leading_dimension(ld == cols ? 0 : ld);
    operand.mutable_shared_memory()->set_region_id(region.id);
    operand.mutable_shared_memory()->set_offset(offset);
  }

  static void ShareOutput(v1::SgemmRequest& request, const Region& region,
                          size_t offset, size_t ld = 0) {
    auto& out = *request.mutable_output()->mutable_shared_memory();
    out.mutable_slice()->set_region_id(region.id);
    out.mutable_slice()->set_offset(offset);
    out.set_leading_dimension(ld);
  }

  // The code of what the side socket says to these.
  uint32_t Answer(const RegionRequest& request,
                  const std::vector<int>& descriptors,
                  size_t size = sizeof(RegionRequest)) {
    const int fd = ConnectTo(SidePath());
    std::string data(reinterpret_cast<const char*>(&request), sizeof(request));
    data.resize(size);
    SendRequest(fd, data.data(), data.size(), descriptors);
    const auto reply = ReadReply(fd);
    // The connection has ended, or goes on.
    char more;
    if (reply.has_value() && reply->code != 0) {
      EXPECT_EQ(recv(fd, &more, 1, 0), 0);
      EXPECT_NE(std::string(reply->message), "");
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(reply->region_id),
                            kRegionIdBytes),
                std::string(kRegionIdBytes, '\0'));
    }
    close(fd);
    for (const int descriptor : descriptors) close(descriptor);
    return reply.has_value() ? reply->code : 999;
  }

  // How many files of memory the process has mapped, and open.
  static int MappedRegions() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find("memfd:test") != std::string::npos;
    }
    return count;
  }

  std::string directory_;
  std::unique_ptr<v1::GemmService::Stub> tcp_;
};

TEST_F(SharedMemoryTest, OperandsAndTheProductLieInTheClientsMemory) {
  Region region(SidePath());
  v1::SgemmRequest request = Product(13, 11, 17);
  request.set_beta(0.25f);
  *request.mutable_c() = Product(13, 1, 11, 5).a();
  const auto inlined = Multiply(request);
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  Share(*request.mutable_a(), region, 4, 20);
  Share(*request.mutable_b(), region, 8192);
  Share(*request.mutable_c(), region, 16384, 12);
  const size_t ld = 14;
  std::vector<float> before(16 * ld, std::nanf(""));
  std::memcpy(region.floats + 8192, before.data(), before.size() * 4);
  ShareOutput(request, region, 4 * 8192, ld);
  const auto response = Multiply(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->c(), "");
  EXPECT_EQ(response->rows(), 13);
  EXPECT_EQ(response->cols(), 11);
  const float* const out = region.floats + 8192;
  for (int i = 0; i < 13; ++i) {
    EXPECT_TRUE(SameBytes(out + i * ld, inlined->c().data() + i * 44, 44));
    // Between rows nothing is written.
    for (size_t j = 11; j < ld; ++j) EXPECT_TRUE(std::isnan(out[i * ld + j]));
  }
  EXPECT_TRUE(std::isnan(out[13 * ld]));
  ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, CMayBeUpdatedInItsPlace) {
  Region region(SidePath());
  v1::SgemmRequest request = Product(6, 7, 8);
  request.set_beta(1.0f);
  *request.mutable_c() = Product(6, 1, 7, 5).a();
  const auto inlined = Multiply(request);
  Share(*request.mutable_c(), region, 4096);
  ShareOutput(request, region, 4096);
  ASSERT_TRUE(Multiply(request).ok());
  EXPECT_TRUE(SameBytes(region.floats + 1024, inlined->c().data(), 6 * 7 * 4));
}

TEST_F(SharedMemoryTest, SharedResidentAndInlineMix) {
  Region region(SidePath());
  v1::SgemmRequest request = Product(6, 7, 8);
  const auto inlined = Multiply(request);
  Share(*request.mutable_a(), region, 0);
  Keep(*request.mutable_b(), "b");
  request.mutable_output()->mutable_resident()->set_matrix_id("p");
  const auto response = Multiply(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(Fetch("p")->packed == inlined->c());
}

TEST_F(SharedMemoryTest, ItIsToldAndServedOverTheUnixSocketAlone) {
  const auto told = [](v1::GemmService::Stub& stub) {
    grpc::ClientContext context;
    v1::GetServerInfoResponse response;
    EXPECT_TRUE(stub.GetServerInfo(&context, {}, &response).ok());
    return response.limits().shared_memory();
  };
  EXPECT_TRUE(told(*stub_));
  EXPECT_FALSE(told(*tcp_));
  Region region(SidePath());
  v1::SgemmRequest request = Product(2, 2, 2);
  Share(*request.mutable_a(), region, 0);
  EXPECT_TRUE(Multiply(request).ok());
  stub_.swap(tcp_);
  EXPECT_EQ(Multiply(request).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(SharedMemoryTest, SlicesMustLieInTheirRegion) {
  Region region(SidePath());
  const v1::SgemmRequest packed = Product(4, 4, 4);
  const auto expect = [&](absl::string_view field, auto change) {
    v1::SgemmRequest request = packed;
    Share(*request.mutable_a(), region, 0);
    ShareOutput(request, region, 8192);
    change(request);
    const absl::Status status = Multiply(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(BadField(status), field) << status;
  };
  using Request = v1::SgemmRequest;
  const auto a = [](Request& r) -> v1::SharedMemorySlice& {
    return *r.mutable_a()->mutable_shared_memory();
  };
  const auto out = [](Request& r) -> v1::SharedMemorySlice& {
    return *r.mutable_output()->mutable_shared_memory()->mutable_slice();
  };
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  expect("a.shared_memory",
         [&](Request& r) { a(r).set_offset(kRegionBytes - 60); });
  expect("a.shared_memory", [&](Request& r) { a(r).set_offset(kMax - 3); });
  expect("a.shared_memory",
         [&](Request& r) { a(r).set_offset(uint64_t{1} << 63); });
  expect("a.shared_memory.offset", [&](Request& r) { a(r).set_offset(2); });
  expect("a.shared_memory.region_id",
         [&](Request& r) { a(r).set_region_id("short"); });
  // Rows so far apart that the end wraps around.
  expect("a.shared_memory", [&](Request& r) {
    r.mutable_a()->set_leading_dimension(uint64_t{1} << 62);
  });
  expect("a.leading_dimension",
         [&](Request& r) { r.mutable_a()->set_leading_dimension(3); });
  expect("output.shared_memory.slice",
         [&](Request& r) { out(r).set_offset(kRegionBytes - 60); });
  expect("output.shared_memory.slice.offset",
         [&](Request& r) { out(r).set_offset(1); });
  expect("output.shared_memory.leading_dimension", [&](Request& r) {
    r.mutable_output()->mutable_shared_memory()->set_leading_dimension(2);
  });
  // Over one of its operands, by one element.
  expect("output.shared_memory.slice",
         [&](Request& r) { out(r).set_offset(60); });
  expect("output.shared_memory.slice",
         [&](Request& r) { a(r).set_offset(8192 + 60); });
  // To the last byte it is allowed.
  v1::SgemmRequest request = packed;
  Share(*request.mutable_a(), region, kRegionBytes - 64);
  ShareOutput(request, region, kRegionBytes - 128);
  EXPECT_TRUE(Multiply(request).ok());
  ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, ARegionThatIsNotThereIsNotFound) {
  v1::SgemmRequest request = Product(2, 2, 2);
  request.mutable_a()->mutable_shared_memory()->set_region_id(
      std::string(16, 'x'));
  absl::Status status = Multiply(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.ResourceInfo")
                  .has_value());
  Region region(SidePath());
  Share(*request.mutable_a(), region, 0);
  EXPECT_TRUE(Multiply(request).ok());
  region.Close();
  WaitFor([&] {
    return Multiply(request).status().code() == absl::StatusCode::kNotFound;
  });
  ExpectNothingHeld();
}

TEST_F(SharedMemoryTest, ARegionThatIsClosedUnderAProductStaysMappedForIt) {
  Region region(SidePath());
  v1::SgemmRequest request = Product(4, 4, 4);
  const auto inlined = Multiply(request);
  Share(*request.mutable_a(), region, 0);
  ShareOutput(request, region, 8192);
  backend_->gate().Close();
  auto product =
      std::async(std::launch::async, [&] { return Multiply(request); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  // Refused either way, so never behind the gate.
  v1::SgemmRequest past_the_end = request;
  past_the_end.mutable_a()->mutable_shared_memory()->set_offset(kRegionBytes);
  EXPECT_EQ(Multiply(past_the_end).status().code(),
            absl::StatusCode::kInvalidArgument);
  region.Close();
  WaitFor([&] {
    return Multiply(past_the_end).status().code() ==
           absl::StatusCode::kNotFound;
  });
  EXPECT_EQ(MappedRegions(), 2);  // ours and the server's
  backend_->gate().Open();
  ASSERT_TRUE(product.get().ok());
  EXPECT_TRUE(SameBytes(region.floats + 2048, inlined->c().data(), 64));
  WaitFor([&] { return MappedRegions() == 1; });
}

TEST_F(SharedMemoryTest, ClientsThatAreKilledLeaveNothing) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int memfd = SealedMemfd(kRegionBytes);
    const int fd = ConnectTo(SidePath());
    const RegionRequest request = {.bytes = kRegionBytes};
    SendRequest(fd, &request, sizeof(request), {memfd});
    const auto reply = ReadReply(fd);
    const char ok = reply.has_value() && reply->code == 0 ? 'y' : 'n';
    static_cast<void>(!write(pipes[1], &ok, 1));
    pause();
    _exit(0);
  }
  char ok = 'n';
  ASSERT_EQ(read(pipes[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  EXPECT_EQ(MappedRegions(), 1);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  waitpid(child, nullptr, 0);
  WaitFor([] { return MappedRegions() == 0; });
  close(pipes[0]);
  close(pipes[1]);
}

TEST_F(SharedMemoryTest, WhatIsNoSealedMemfdIsRefused) {
  constexpr auto kInvalid =
      static_cast<uint32_t>(absl::StatusCode::kInvalidArgument);
  const RegionRequest request = {.bytes = kRegionBytes};
  EXPECT_EQ(Answer(request, {}), kInvalid);
  EXPECT_EQ(Answer(request, {SealedMemfd(kRegionBytes, 0)}), kInvalid);
  EXPECT_EQ(Answer(request, {SealedMemfd(kRegionBytes, F_SEAL_GROW)}),
            kInvalid);
  EXPECT_EQ(Answer(request, {SealedMemfd(kRegionBytes - 1)}), kInvalid);
  EXPECT_EQ(Answer({.bytes = 0}, {SealedMemfd(kRegionBytes)}), kInvalid);
  EXPECT_EQ(Answer({.bytes = ~uint64_t{0}}, {SealedMemfd(kRegionBytes)}),
            kInvalid);
  EXPECT_EQ(Answer(request,
                   {SealedMemfd(kRegionBytes, F_SEAL_SHRINK | F_SEAL_WRITE)}),
            kInvalid);
  EXPECT_EQ(Answer(request, {open("/dev/null", O_RDWR)}), kInvalid);
  EXPECT_EQ(
      Answer(request, {SealedMemfd(kRegionBytes), SealedMemfd(kRegionBytes)}),
      kInvalid);
  EXPECT_EQ(Answer(request, {SealedMemfd(kRegionBytes)}, 15), kInvalid);
  EXPECT_EQ(Answer(request, {SealedMemfd(kRegionBytes)}, 17), kInvalid);
  EXPECT_EQ(Answer({.version = 2, .bytes = 64}, {SealedMemfd(64)}),
            static_cast<uint32_t>(absl::StatusCode::kUnimplemented));
  WaitFor([] { return MappedRegions() == 0; });
}

TEST_F(SharedMemoryTest, ASealedMemfdCannotBeShrunkUnderTheServer) {
  Region region(SidePath());
  EXPECT_NE(ftruncate(region.memfd, 0), 0);
}

TEST_F(SharedMemoryTest, MoreThanOneRequestEndsTheConnection) {
  Region region(SidePath());
  const RegionRequest request = {.bytes = kRegionBytes};
  SendRequest(region.fd, &request, sizeof(request), {region.memfd});
  char more;
  EXPECT_EQ(recv(region.fd, &more, 1, 0), 0);
  WaitFor([] { return MappedRegions() == 1; });  // ours
}

TEST_F(SharedMemoryTest, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  // As far as files go, anybody may connect.
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(SidePath().c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const int fd = ConnectTo(SidePath());
    const auto reply = ReadReply(fd);
    _exit(reply.has_value() &&
                  reply->code ==
                      static_cast<uint32_t>(absl::StatusCode::kPermissionDenied)
              ? 0
              : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SharedMemoryTest, TheSideSocketIsItsUsersAloneAndGoesWithTheServer) {
  struct stat info;
  ASSERT_EQ(stat(SidePath().c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600);
  server_.reset();
  EXPECT_NE(stat(SidePath().c_str(), &info), 0);
}

TEST_F(SharedMemoryTest, ItNeedsAUnixSocket) {
  RpcOptions options;
  options.listen = "127.0.0.1:0";
  options.shared_memory = true;
  const auto server = TryStart(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("--unix-socket"));
}

}  // namespace
}  // namespace gemmd
