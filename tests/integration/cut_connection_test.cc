// A connection that is lost while a product runs: what the client sends again,
// and what it must not.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gemmd/client.h"
#include "tests/integration/child_program.h"
#include "tests/support/client_matrices.h"
#include "tests/support/exposition.h"
#include "tests/support/held_proxy.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

// A server at a unix socket, and a client that comes by another, through a
// proxy. What they share as memory does not go that way.
class CutConnectionTest : public ::testing::Test {
 protected:
  CutConnectionTest() {
    std::filesystem::remove(Path("p.shm"));
    std::filesystem::create_symlink(Path("s.shm"), Path("p.shm"));
    const std::vector<std::string> lines = server_.ReadLines(2);
    EXPECT_EQ(lines.size(), 2u) << server_.error;
    if (!lines.empty()) {
      http_port_ = std::stoi(lines.back().substr(lines.back().rfind(':') + 1));
    }
    client_ = *Client::Create(
        {.address = absl::StrCat("unix:", Path("p")), .connections = 1});
  }
  ~CutConnectionTest() override {
    for (const char* name : {"p", "p.shm"}) std::filesystem::remove(Path(name));
  }

  static std::string Path(const char* name) {
    return absl::StrCat(::testing::TempDir(), "/gemmd_cut_", getpid(), name);
  }

  double Answered() const {
    return testing::ParseExposition(
               testing::HttpGet(http_port_, "/metrics").body)
        .Sum("grpc_server_call_completed_total", "/Sgemm\"");
  }

  // Multiplies, and loses the server's first answer on its way.
  absl::StatusOr<SgemmAnswer> MultiplyAndLoseTheAnswer(const SgemmCall& call) {
    EXPECT_TRUE(client_->Health().ok());  // it is connected
    const double before = Answered();
    proxy_.StopReading();
    absl::StatusOr<SgemmAnswer> answer;
    absl::Notification ended;
    client_->SgemmAsync(call, [&](absl::StatusOr<SgemmAnswer> result) {
      answer = std::move(result);
      ended.Notify();
    });
    while (Answered() <= before) absl::SleepFor(absl::Milliseconds(5));
    proxy_.Cut();
    ended.WaitForNotification();
    return answer;
  }

  testing::ChildProgram server_{
      {"--listen=", absl::StrCat("--unix-socket=", Path("s")),
       "--shared-memory=true", "--http-listen=127.0.0.1:0", "--backend=cpu",
       "--pinned-pool-bytes=64MiB"}};
  int http_port_ = 0;
  testing::HeldProxy proxy_{{.to_path = Path("s"), .path = Path("p")}};
  std::unique_ptr<Client> client_;
  const Matrix a_ = RandomMatrix(7, 5);
  const Matrix b_ = RandomMatrix(5, 6);
};

TEST_F(CutConnectionTest, AProductIsSentAgain) {
  const auto answer =
      MultiplyAndLoseTheAnswer({.a = a_.view(), .b = b_.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->attempts, 2);
}

// C := A B + C: the client cannot know that it was run, and a second time would
// add again.
TEST_F(CutConnectionTest, AnAdditionToSharedMemoryIsNot) {
  const auto product = client_->Sgemm({.a = a_.view(), .b = b_.view()});
  ASSERT_TRUE(product.ok()) << product.status();
  auto memory = client_->ShareMemory(7 * 6 * sizeof(float));  // zeros
  ASSERT_TRUE(memory.ok()) << memory.status();
  const MutableMatrixView c = memory->Matrix(7, 6, 0);
  const double before = Answered();
  const auto answer = MultiplyAndLoseTheAnswer(
      {.a = a_.view(), .b = b_.view(), .c = c, .beta = 1, .output = c});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_EQ(Answered(), before + 1);
  Matrix sum(7, 6);
  std::copy_n(c.data, 7 * 6, sum.data());
  EXPECT_TRUE(SameBits(sum, product->c));
}

}  // namespace
}  // namespace gemmd
