// The client library and several servers behind one name that resolves to all.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/client.h"
#include "tests/integration/child_program.h"
#include "tests/support/client_matrices.h"

namespace gemmd {
namespace {

class ClientReplicasTest : public ::testing::Test {
 protected:
  // gRPC's static resolver stands for the name.
  std::string Address() {
    std::string address = "ipv4:";
    for (testing::ChildProgram& server : servers_) {
      const std::vector<std::string> lines = server.ReadLines(1);
      EXPECT_FALSE(lines.empty()) << server.error;
      if (lines.empty()) continue;
      absl::StrAppend(&address, address.back() == ':' ? "" : ",",
                      lines[0].substr(lines[0].rfind(' ') + 1));
    }
    return address;
  }

  static testing::ChildProgram Server() {
    return testing::ChildProgram({"--listen=127.0.0.1:0",
                                  "--http-listen=", "--backend=cpu",
                                  "--pinned-pool-bytes=64MiB"});
  }

  std::array<testing::ChildProgram, 3> servers_ = {Server(), Server(),
                                                   Server()};
};

// A handle outlives the server that it was uploaded to: the next one says
// NOT_FOUND, and gets the matrix again.
TEST_F(ClientReplicasTest, AHandleGoesOnAtAnotherReplica) {
  auto client = Client::Create({.address = Address(), .connections = 2});
  ASSERT_TRUE(client.ok()) << client.status();
  const Matrix a = RandomMatrix(20, 300);
  const Matrix b = RandomMatrix(300, 200);
  const auto resident = (*client)->Upload(b.view(), {.source_lives = true});
  ASSERT_TRUE(resident.ok()) << resident.status();
  const auto expected = (*client)->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (size_t gone = 0; gone < servers_.size(); ++gone) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 5; ++j) {
          const auto product =
              (*client)->Sgemm({.a = a.view(), .b = *resident});
          ASSERT_TRUE(product.ok()) << gone << ": " << product.status();
          ASSERT_TRUE(SameBits(product->c, expected->c));
        }
      });
    }
    // While they are at it; the last one stays.
    if (gone + 1 < servers_.size()) servers_[gone].Signal(SIGTERM);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace gemmd
