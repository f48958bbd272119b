#include "server/observe/logging.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string Logged(absl::string_view format, absl::string_view level,
                   const std::function<void()>& log) {
  CaptureStderr();
  EXPECT_TRUE(InitLogging(level, format).ok());
  log();
  return GetCapturedStderr();
}

TEST(LoggingTest, TextIsOneLineWithTimeLevelMessageAndFields) {
  const std::string line = Logged("text", "info", [] {
    Log(LogLevel::kInfo, "started", {{"port", "80"}, {"name", "a b"}});
  });
  EXPECT_THAT(line, ContainsRegex("^20[0-9-]+T[0-9:.]+Z info  started port=80 "
                                  "name=\"a b\"\n$"));
}

TEST(LoggingTest, JsonIsOneObjectALine) {
  const std::string line = Logged("json", "info", [] {
    Log(LogLevel::kError, "bad \"thing\"", {{"path", "C:\\x"}});
  });
  EXPECT_THAT(line, ContainsRegex("^\\{\"time\":\"20[0-9-]+T[0-9:.]+Z\",\"level"
                                  "\":\"error\",\"message\":\"bad "));
  EXPECT_THAT(line, HasSubstr("\"message\":\"bad \\\"thing\\\"\","
                              "\"path\":\"C:\\\\x\"}\n"));
}

TEST(LoggingTest, AValueCanNeitherEndTheLineNorForgeAField) {
  const std::string evil = "x\n2026-01-01 fake code=OK\"\x1b[31m";
  for (const char* format : {"text", "json"}) {
    const std::string line = Logged(format, "info", [&] {
      Log(LogLevel::kInfo, "m", {{"id", evil}});
    });
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
    EXPECT_THAT(line,
                HasSubstr("x\\n2026-01-01 fake code=OK\\\"\\u001b[31m\""));
  }
}

TEST(LoggingTest, WritesOnlyLevelsThatAreOn) {
  const std::string lines = Logged("text", "warn", [] {
    Log(LogLevel::kInfo, "quiet");
    Log(LogLevel::kWarn, "loud");
    SetLogLevel(LogLevel::kDebug);
    Log(LogLevel::kDebug, "detail");
  });
  EXPECT_THAT(lines, Not(HasSubstr("quiet")));
  EXPECT_THAT(lines, HasSubstr("loud"));
  EXPECT_THAT(lines, HasSubstr("detail"));
}

TEST(LoggingTest, AFailedRequestIsOneLineWithWhatIsKnown) {
  const std::string line = Logged("text", "info", [] {
    LogFailedRequest({.method = "S/M", .client = "abc", .seconds = 0.25},
                     absl::NotFoundError("no kernel \"x\""));
  });
  EXPECT_THAT(line, HasSubstr(" request failed method=S/M code=NOT_FOUND "
                              "error=\"no kernel \\\"x\\\"\" "
                              "seconds=0.250000 client=abc\n"));
}

TEST(LoggingTest, OnlyTheServersOwnFaultsAreErrors) {
  const std::string lines = Logged("text", "error", [] {
    LogFailedRequest({.method = "M"}, absl::InvalidArgumentError("theirs"));
    LogFailedRequest({.method = "M"}, absl::InternalError("ours"));
  });
  EXPECT_THAT(lines, Not(HasSubstr("theirs")));
  EXPECT_THAT(lines, HasSubstr("ours"));
}

TEST(LoggingTest, AFloodOfFailuresIsAFewLinesThatSayHowManyThereWere) {
  const auto fail = [] {
    LogFailedRequest({.method = "M"}, absl::UnavailableError("no"));
  };
  const std::string lines = Logged("text", "info", [&] {
    for (int i = 0; i < 10'000; ++i) fail();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    fail();
  });
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  EXPECT_GE(count, 2);
  EXPECT_LE(count, 3 * kFailedRequestLines);
  EXPECT_THAT(lines, ContainsRegex("left_out_before=[0-9]+\n$"));
}

TEST(LoggingTest, UnknownLevelsAndFormatsNameTheKnownOnes) {
  EXPECT_THAT(InitLogging("loud", "text").message(),
              HasSubstr("trace, debug, info, warn, error"));
  EXPECT_THAT(InitLogging("info", "xml").message(), HasSubstr("text, json"));
}

}  // namespace
}  // namespace gemmd
