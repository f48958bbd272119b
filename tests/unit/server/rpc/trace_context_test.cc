#include "server/rpc/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace gemmd {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

std::string Header(const std::string& version, const std::string& trace,
                   const std::string& span, const std::string& rest) {
  return version + "-" + trace + "-" + span + "-" + rest;
}

TEST(TraceContextTest, HasTheIdsOfAValidHeader) {
  for (const char* flags : {"00", "01", "ff"}) {
    const TraceContext context =
        ParseTraceparent(Header("00", kTrace, kSpan, flags));
    EXPECT_EQ(context.trace_id, kTrace);
    EXPECT_EQ(context.span_id, kSpan);
  }
}

TEST(TraceContextTest, ReadsWhatLaterVersionsMayAppend) {
  EXPECT_EQ(ParseTraceparent(Header("01", kTrace, kSpan, "00")).trace_id,
            kTrace);
  EXPECT_EQ(ParseTraceparent(Header("cc", kTrace, kSpan, "01-more")).trace_id,
            kTrace);
  EXPECT_EQ(ParseTraceparent(Header("cc", kTrace, kSpan, "01more")).trace_id,
            "");
}

TEST(TraceContextTest, IgnoresWhatIsMalformed) {
  const std::string good = Header("00", kTrace, kSpan, "01");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ParseTraceparent(good.substr(0, size)).trace_id, "") << size;
  }
  // Any byte of it: neither a digit nor a hyphen can be these.
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char wrong : {'A', 'g', ' ', '\0', '\n', '_'}) {
      std::string bad = good;
      bad[at] = wrong;
      EXPECT_EQ(ParseTraceparent(bad).trace_id, "") << at << " " << wrong;
    }
  }
  const std::string bads[] = {
      good + "-",
      good + "-more",
      " " + good,
      good + " ",
      Header("ff", kTrace, kSpan, "01"),
      Header("00", std::string(32, '0'), kSpan, "01"),
      Header("00", kTrace, std::string(16, '0'), "01"),
      Header("00", "0AF7651916CD43DD8448EB211C80319C", kSpan, "01"),
  };
  for (const std::string& bad : bads) {
    EXPECT_EQ(ParseTraceparent(bad).trace_id, "") << bad;
    EXPECT_EQ(ParseTraceparent(bad).span_id, "") << bad;
  }
}

}  // namespace
}  // namespace gemmd
