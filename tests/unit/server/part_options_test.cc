#include "server/part_options.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>

namespace gemmd {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(RpcOptionsOfTest, TwoMessagesFitIntoWhatASmallContainerReceives) {
  for (const size_t limit : {512 * kMiB, 1024 * kMiB, 64 * 1024 * kMiB}) {
    const RpcOptions rpc = RpcOptionsOf({}, limit);
    EXPECT_LE(2 * rpc.max_inline_bytes, rpc.receive_bytes) << limit;
    EXPECT_LE(rpc.receive_bytes, limit / 4) << limit;
  }
  EXPECT_EQ(RpcOptionsOf({}, 512 * kMiB).max_inline_bytes, 64 * kMiB);
  EXPECT_EQ(RpcOptionsOf({}, std::nullopt).max_inline_bytes, 256 * kMiB);
}

TEST(RpcOptionsOfTest, TheOperatorsSizeOfAMessageStands) {
  ServerOptions options;
  options.max_inline_bytes = 7 * kMiB;
  EXPECT_EQ(RpcOptionsOf(options, 512 * kMiB).max_inline_bytes, 7 * kMiB);
}

}  // namespace
}  // namespace gemmd
