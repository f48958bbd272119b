#include "server/observe/logging.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string Logged(absl::string_view format, absl::string_view level,
                   const std::function<void()>& log) {
  CaptureStderr();
  EXPECT_TRUE(InitLogging(level, format).ok());
  log();
  EXPECT_TRUE(FlushLog(std::chrono::seconds(20)));
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

// A pipe in stderr's place.
class StderrPipe {
 public:
  StderrPipe() : saved_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_), 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~StderrPipe() {
    Restore();
    close(ends_[0]);
  }

  void Restore() {
    if (saved_ >= 0) dup2(saved_, STDERR_FILENO);
    close(std::exchange(saved_, -1));
  }

  // All that comes until Restore.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    ssize_t count;
    while ((count = read(ends_[0], bytes, sizeof(bytes))) > 0) {
      all.append(bytes, count);
    }
    return all;
  }

 private:
  int saved_;
  int ends_[2];
};

TEST(LoggingTest, AStderrThatNobodyReadsStopsNobody) {
  ASSERT_TRUE(InitLogging("info", "text").ok());
  StderrPipe pipe;
  // 2 MB, of which a pipe holds 64 KB.
  auto logs = std::async(std::launch::async, [] {
    for (int i = 0; i < 20'000; ++i) {
      Log(LogLevel::kInfo, std::string(100, 'x'));
    }
  });
  EXPECT_EQ(logs.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(50)));
  auto reader = std::async(std::launch::async, [&] { return pipe.ReadAll(); });
  Log(LogLevel::kInfo, "the last");
  EXPECT_TRUE(FlushLog(std::chrono::seconds(20)));
  pipe.Restore();
  const std::string lines = reader.get();
  EXPECT_THAT(lines, ContainsRegex("log lines lost.* lines=[0-9]+\n"));
  EXPECT_THAT(lines, EndsWith("the last\n"));
}

TEST(LoggingTest, UnknownLevelsAndFormatsNameTheKnownOnes) {
  EXPECT_THAT(InitLogging("loud", "text").message(),
              HasSubstr("trace, debug, info, warn, error"));
  EXPECT_THAT(InitLogging("info", "xml").message(), HasSubstr("text, json"));
}

}  // namespace
}  // namespace gemmd
