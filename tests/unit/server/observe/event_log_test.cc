#include "server/observe/event_log.h"

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

std::string Logged(absl::string_view level, const std::function<void()>& log) {
  CaptureStderr();
  EXPECT_TRUE(InitLogging(level, "text").ok());
  log();
  EXPECT_TRUE(FlushLog(std::chrono::seconds(20)));
  return GetCapturedStderr();
}

TEST(EventLogTest, ARequestThatEndedWellIsOneLineAtDebugAlone) {
  const EndedRequest request = {
      .method = "S/M",
      .client = "abc",
      .trace_id = "0af7651916cd43dd8448eb211c80319c",
      .span_id = "b7ad6b7169203331",
      .request_id = "r1",
      .shape = "4x5x6",
      .kernel = "openblas",
      .run = EndedRequest::Run{.device = 1,
                               .batch_size = 7,
                               .seconds = {.decode = 0.000001,
                                           .queue = 0.000002,
                                           .h2d = 0.000003,
                                           .compute = 0.000004,
                                           .d2h = 0.000005},
                               .encode_seconds = 0.000006},
      .seconds = 0.5};
  EXPECT_FALSE(IsLogOn(LogLevel::kDebug));
  EXPECT_EQ(Logged("info", [&] { LogRequest(request, absl::OkStatus()); }), "");
  const std::string line = Logged("debug", [&] {
    EXPECT_TRUE(IsRequestLogged(absl::OkStatus()));
    LogRequest(request, absl::OkStatus());
  });
  EXPECT_THAT(
      line,
      HasSubstr(" debug request method=S/M code=OK seconds=0.500000 "
                "client=abc request_id=r1 shape=4x5x6 kernel=openblas device=1 "
                "batch=7 decode=0.000001 queue=0.000002 h2d=0.000003 "
                "compute=0.000004 d2h=0.000005 encode=0.000006 "
                "trace_id=0af7651916cd43dd8448eb211c80319c "
                "span_id=b7ad6b7169203331\n"));
}

TEST(EventLogTest, AtDebugEveryRequestHasItsLine) {
  const std::string lines = Logged("debug", [] {
    for (int i = 0; i < 500; ++i) {
      LogRequest({.method = "M"}, absl::UnavailableError("no"));
      LogRequest({.method = "M"}, absl::OkStatus());
    }
  });
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1000);
}

TEST(EventLogTest, AFailedRequestIsOneLineWithWhatIsKnown) {
  const std::string line = Logged("info", [] {
    LogRequest({.method = "S/M", .client = "abc", .seconds = 0.25},
               absl::NotFoundError("no kernel \"x\""));
  });
  EXPECT_THAT(line, HasSubstr(" request failed method=S/M code=NOT_FOUND "
                              "error=\"no kernel \\\"x\\\"\" "
                              "seconds=0.250000 client=abc\n"));
}

TEST(EventLogTest, OnlyTheServersOwnFaultsAreErrors) {
  const std::string lines = Logged("error", [] {
    LogRequest({.method = "M"}, absl::InvalidArgumentError("theirs"));
    LogRequest({.method = "M"}, absl::InternalError("ours"));
  });
  EXPECT_THAT(lines, Not(HasSubstr("theirs")));
  EXPECT_THAT(lines, HasSubstr("ours"));
}

TEST(EventLogTest, AFloodOfFailuresIsAFewLinesThatSayHowManyThereWere) {
  const auto fail = [] {
    LogRequest({.method = "M"}, absl::UnavailableError("no"));
  };
  const std::string lines = Logged("info", [&] {
    for (int i = 0; i < 10'000; ++i) fail();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    fail();
  });
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  EXPECT_GE(count, 2);
  EXPECT_LE(count, 3 * kLimitedLines);
  EXPECT_THAT(lines, ContainsRegex("left_out_before=[0-9]+\n$"));
}

TEST(EventLogTest, AFailedLaunchNamesKernelDeviceAndCause) {
  const std::string line = Logged("error", [] {
    LogFailedLaunch("cublas", 3,
                    absl::InternalError("cublasSgemm returned 13"));
  });
  EXPECT_THAT(line, HasSubstr("error launch failed kernel=cublas device=3 "
                              "error=\"cublasSgemm returned 13\"\n"));
}

}  // namespace
}  // namespace gemmd
