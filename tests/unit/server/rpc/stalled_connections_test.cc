#include "server/rpc/stalled_connections.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr MonotonicDuration kPatience = std::chrono::seconds(10);
constexpr MonotonicDuration kPause = kPatience / 20;

// A connection of a unix socket, both of whose ends are the test's. Time is the
// test's, too.
class StalledConnectionsTest : public ::testing::Test {
 protected:
  StalledConnectionsTest() {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    unlink(path_.c_str());
    EXPECT_EQ(bind(listener_, generic, sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(connect(client_, generic, sizeof(address)), 0);
    server_ = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
    EXPECT_GE(server_, 0);
    fcntl(client_, F_SETFL, O_NONBLOCK);
  }
  ~StalledConnectionsTest() override {
    for (const int fd : {listener_, client_, server_}) close(fd);
    unlink(path_.c_str());
  }

  // What the server does all the time: all that there is room for.
  void Fill() {
    while (send(server_, data_.data(), data_.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  size_t Read(size_t most) {
    size_t read = 0;
    while (read < most) {
      const ssize_t count = recv(client_, data_.data(), data_.size(), 0);
      if (count <= 0) break;
      read += static_cast<size_t>(count);
    }
    return read;
  }
  int Buffer() const {
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    getsockopt(server_, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
    return bytes;
  }
  bool IsOpen() { return send(server_, data_.data(), 0, MSG_NOSIGNAL) == 0; }
  int LookLater(MonotonicDuration later) {
    now_ += later;
    return connections_.Look(now_);
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/gemmd_stalled_", getpid(), ".sock");
  const int listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
  const int client_ = socket(AF_UNIX, SOCK_STREAM, 0);
  int server_ = -1;
  std::vector<char> data_ = std::vector<char>(32 << 10);
  MonotonicTime now_ = MonotonicClock::now();
  StalledConnections connections_{path_, kPatience};
};

TEST_F(StalledConnectionsTest, OneThatTakesNothingIsEndedAfterThePatience) {
  Fill();
  ASSERT_EQ(LookLater(kPause), 0);
  const MonotonicTime end = now_ + kPatience;
  while (now_ + kPause < end) ASSERT_EQ(LookLater(kPause), 0);
  int ended = 0;
  for (int i = 0; i < 3; ++i) ended += LookLater(kPause);
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(IsOpen());
  EXPECT_GT(Read(SIZE_MAX), 0u);  // what was sent is there
}

// As many bytes are unread at every look as at the one before.
TEST_F(StalledConnectionsTest, OneThatReadsInBurstsIsNot) {
  const int buffer = Buffer();
  Fill();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(LookLater(kPause), 0) << i;
    ASSERT_GT(Read(SIZE_MAX), 0u) << i;
    Fill();
  }
  Read(SIZE_MAX);
  EXPECT_EQ(LookLater(kPause), 0);
  EXPECT_EQ(Buffer(), buffer);
  EXPECT_TRUE(IsOpen());
}

TEST_F(StalledConnectionsTest, OneThatReadsALittleNowAndThenIsNot) {
  for (int i = 0; i < 200; ++i) {
    Fill();
    ASSERT_EQ(LookLater(kPatience / 4), 0) << i;
    ASSERT_GT(Read(1), 0u) << i;
  }
  EXPECT_TRUE(IsOpen());
}

TEST_F(StalledConnectionsTest, OneThatIsOwedLittleOrNothingIsNot) {
  for (int i = 0; i < 50; ++i) ASSERT_EQ(LookLater(kPause), 0);
  ASSERT_EQ(send(server_, "answer", 6, 0), 6);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(LookLater(kPause), 0);
  EXPECT_TRUE(IsOpen());
}

}  // namespace
}  // namespace gemmd
