#include "server/listen_address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

TEST(ListenAddressTest, ReadsHostsOfEveryKind) {
  struct Case {
    const char* text;
    const char* host;
    int port;
    bool loopback;
  };
  for (const Case& c :
       {Case{"127.0.0.1:50051", "127.0.0.1", 50051, true},
        Case{"127.3.2.1:1", "127.3.2.1", 1, true},
        Case{"localhost:0", "localhost", 0, true},
        Case{"[::1]:65535", "::1", 65535, true},
        Case{"0.0.0.0:80", "0.0.0.0", 80, false},
        Case{"[::]:80", "::", 80, false},
        Case{"127.example.com:80", "127.example.com", 80, false},
        Case{"gpu-7.lan:80", "gpu-7.lan", 80, false}}) {
    const auto address = ParseListenAddress(c.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, c.host);
    EXPECT_EQ(address->port, c.port);
    EXPECT_EQ(address->loopback(), c.loopback) << c.text;
    EXPECT_EQ(address->WithPort(c.port), c.text);
  }
}

TEST(ListenAddressTest, SaysWhatIsWrongAndWhatIsWanted) {
  for (const char* text :
       {"", "50051", "127.0.0.1", "127.0.0.1:", ":50051", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:1x",
        "::1:80", "[::1:80", "[]:80", "host:999999999999"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(address.status().message(),
                ::testing::HasSubstr("want HOST:PORT"));
  }
}

}  // namespace
}  // namespace gemmd
