// A connection that cannot be accepted, for whatever reason of the system's.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/mutex.h"
#include "tests/support/http_get.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace {

// The error of the next accept4, once; 0: none.
std::atomic<int> g_next_error{0};

}  // namespace

// The accept4 that gRPC calls: a program's own goes before the C library's.
int AcceptOrFail(int fd, sockaddr* address, socklen_t* size,
                 int flags) asm("accept4");
int AcceptOrFail(int fd, sockaddr* address, socklen_t* size, int flags) {
  const int error = g_next_error.exchange(0);
  if (error == 0) {
    return static_cast<int>(syscall(SYS_accept4, fd, address, size, flags));
  }
  errno = error;
  return -1;
}

namespace gemmd {
namespace {

class LostPortTest : public RpcFixture {
 protected:
  LostPortTest() {
    port_lost_ = [this](const std::string& reason) {
      MutexLock lock(&mu_);
      reasons_.push_back(reason);
    };
  }
  ~LostPortTest() override {
    g_next_error = 0;
    server_.reset();  // before what it calls
  }

  std::vector<std::string> Reasons() {
    MutexLock lock(&mu_);
    return reasons_;
  }

  bool Multiplies() {
    const auto stub = v1::GemmService::NewStub(
        Connect(absl::StrCat("127.0.0.1:", server_->port())));
    grpc::ClientContext context;
    v1::SgemmResponse response;
    return stub->Sgemm(&context, Product(2, 3, 4), &response).ok();
  }

  // The next connection that comes fails so.
  void FailNext(int error) {
    g_next_error = error;
    const int fd = testing::ConnectLoopback(server_->port());
    ASSERT_GE(fd, 0);
    WaitFor([] { return g_next_error == 0; });
    close(fd);
  }

 private:
  Mutex mu_;
  std::vector<std::string> reasons_ ABSL_GUARDED_BY(mu_);
};

TEST_F(LostPortTest, IsToldOfWithTheSystemsReason) {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM, EPROTO,
                          ENETDOWN, EHOSTUNREACH, EOPNOTSUPP}) {
    SCOPED_TRACE(std::generic_category().message(error));
    const size_t before = Reasons().size();
    StartServer();
    FailNext(error);
    WaitFor([&] { return Reasons().size() > before; });
    ASSERT_EQ(Reasons().size(), before + 1);
    EXPECT_EQ(Reasons().back(), std::generic_category().message(error));
    server_.reset();
  }
}

TEST_F(LostPortTest, OneThatIsNotLostGoesOnAndNobodyIsTold) {
  StartServer();
  for (const int error : {EINTR, EAGAIN, ECONNABORTED}) {
    FailNext(error);
    EXPECT_TRUE(Multiplies());
  }
  server_.reset();  // its end is no loss either
  EXPECT_TRUE(Reasons().empty()) << Reasons().front();
}

}  // namespace
}  // namespace gemmd
