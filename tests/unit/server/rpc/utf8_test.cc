#include "server/rpc/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace gemmd {
namespace {

bool IsUtf8(const std::string& text) {
  Utf8Checker checker;
  return checker.Feed(
             {reinterpret_cast<const uint8_t*>(text.data()), text.size()}) &&
         checker.complete();
}

TEST(Utf8CheckerTest, AcceptsCharactersOfEveryLength) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("sgemm"));
  EXPECT_TRUE(IsUtf8("\u00e9\u20ac\U0001F600"));
  EXPECT_TRUE(IsUtf8("\xF4\x8F\xBF\xBF"));  // U+10FFFF
}

TEST(Utf8CheckerTest, RefusesWhatIsNoCharacter) {
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
        "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3g", "\xE2\x82g"}) {
    EXPECT_FALSE(IsUtf8(bad)) << testing::PrintToString(std::string(bad));
  }
}

TEST(Utf8CheckerTest, ACharacterMayBeSplit) {
  const std::string text = "a\u20ac\U0001F600\u00e9";
  Utf8Checker checker;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    ASSERT_TRUE(checker.Feed({&byte, 1}));
  }
  EXPECT_TRUE(checker.complete());
}

}  // namespace
}  // namespace gemmd
