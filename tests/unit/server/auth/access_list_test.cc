#include "server/auth/access_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// printf '\x00\x01...\x0f''trainer.correct-horse' | sha256sum
constexpr char kSalt[] = "000102030405060708090a0b0c0d0e0f";
constexpr char kHash[] =
    "b199e12f7d919cc958af13efea6b3c52ba4194232ea95af6b9f6364ce8218355";
constexpr char kToken[] = "trainer.correct-horse";

std::string Line(absl::string_view name, absl::string_view roles) {
  return std::string(name) + " " + std::string(roles) + " sha256:" + kSalt +
         ":" + kHash;
}

AccessList MustParse(absl::string_view text) {
  absl::StatusOr<AccessList> list = AccessList::Parse(text);
  EXPECT_TRUE(list.ok()) << list.status();
  return *std::move(list);
}

TEST(AccessListTest, KnowsATokenByItsSaltedHash) {
  const AccessList list = MustParse(Line("trainer", "compute"));
  const auto principal = list.ByToken(kToken);
  ASSERT_TRUE(principal.ok()) << principal.status();
  EXPECT_EQ(principal->name, "trainer");
  EXPECT_TRUE(principal->roles.Has(Role::kCompute));
  EXPECT_FALSE(principal->roles.Has(Role::kInfo));
}

TEST(AccessListTest, RefusesEveryOtherTokenInTheSameWords) {
  const AccessList list = MustParse(Line("trainer", "compute,info") +
                                    "\nhost.example info certificate\n");
  const std::string unknown =
      list.ByToken("nobody.correct-horse").status().ToString();
  EXPECT_THAT(unknown, HasSubstr("UNAUTHENTICATED"));
  for (const std::string token :
       {"trainer.correct-hors", "trainer.correct-horse ",
        "trainer.Correct-horse", "TRAINER.correct-horse",
        "host.example.correct-horse", ".correct-horse-and-more",
        "trainercorrect-horse-battery"}) {
    EXPECT_EQ(list.ByToken(token).status().ToString(), unknown) << token;
  }
  EXPECT_EQ(list.ByToken("").status().ToString(), unknown);
  EXPECT_EQ(list.ByToken(std::string(1 << 20, 'x')).status().ToString(),
            unknown);
}

TEST(AccessListTest, KnowsACertificateByOneOfItsNames) {
  const AccessList list = MustParse(
      "spiffe://prod/batch compute certificate\n" + Line("trainer", "compute"));
  const std::vector<absl::string_view> names = {"other", "spiffe://prod/batch"};
  const auto principal = list.ByCertificate(names);
  ASSERT_TRUE(principal.ok()) << principal.status();
  EXPECT_EQ(principal->name, "spiffe://prod/batch");
  // A certificate that happens to bear a token's name is not that token.
  const std::vector<absl::string_view> token_name = {"trainer"};
  EXPECT_TRUE(absl::IsUnauthenticated(list.ByCertificate(token_name).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(list.ByCertificate({}).status()));
}

TEST(AccessListTest, TakesCommentsBlankLinesAndTabs) {
  const AccessList list = MustParse("# who\n\n\t" + Line("a", "info") +
                                    "  # the first\r\nb\tinfo\tcertificate");
  EXPECT_EQ(list.size(), 2);
}

TEST(AccessListTest, SaysWhichLineIsWrongAndNeverItsHash) {
  const std::string good = Line("good", "info") + "\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"one two", "2 words"},
      {Line("two", "root"), "\"root\" is not a role"},
      {Line("two", ""), "2 words"},
      {Line("two", "info,"), "\"\" is not a role"},
      {Line("t\x01wo", "info"), "the name \"t\\x01wo\""},
      {Line(std::string(129, 'x'), "info"), "has 129 bytes"},
      {Line("good", "info"), "stands twice"},
      {"two info sha256:00:11", "32 hex digits of salt"},
      {"two info sha1:" + std::string(kSalt) + ":" + kHash, "neither"},
      {Line("two", "info") + "00", "64 of hash"},
      {Line("two", "info").substr(0, 100) + "zz", "64 of hash"},
  };
  for (const auto& [line, wanted] : cases) {
    const absl::Status status = AccessList::Parse(good + line).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << line << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("line 2: "), HasSubstr(wanted),
                      Not(HasSubstr(std::string(kHash).substr(0, 8)))));
  }
}

TEST(AccessListTest, RefusesAFileThatWouldLockEverybodyOut) {
  for (const char* text : {"", "\n\n", "# nobody yet\n"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(AccessList::Parse(text).status()));
  }
}

}  // namespace
}  // namespace gemmd
