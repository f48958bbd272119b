// The program as an operator meets it: its lines, signals and exit codes.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/child_program.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using testing::ChildProgram;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::vector<std::string> kFreePorts = {
    "--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--backend=cpu",
    "--pinned-pool-bytes=64MiB"};

std::vector<std::string> With(std::vector<std::string> more) {
  std::vector<std::string> arguments = kFreePorts;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

int PortOf(const std::string& line) {
  return std::stoi(line.substr(line.rfind(':') + 1));
}

// One line on stderr, nothing on stdout, this exit code.
void ExpectRefusal(std::vector<std::string> arguments, int code,
                   const std::string& part,
                   std::vector<std::string> environment = {}) {
  ChildProgram program(std::move(arguments), std::move(environment));
  EXPECT_EQ(program.Wait(), code) << program.error;
  EXPECT_EQ(program.output, "");
  EXPECT_THAT(program.error,
              AllOf(::testing::StartsWith("gemmd: "), HasSubstr(part)));
  EXPECT_EQ(std::count(program.error.begin(), program.error.end(), '\n'), 1)
      << program.error;
}

class ProgramSignalTest : public ::testing::TestWithParam<int> {};

TEST_P(ProgramSignalTest, SaysItsPortsServesAndStopsAsAsked) {
  ChildProgram program(kFreePorts);
  const std::vector<std::string> lines = program.ReadLines(2);
  ASSERT_EQ(lines.size(), 2u) << program.error;
  EXPECT_THAT(lines[0], MatchesRegex("grpc listening on 127.0.0.1:[0-9]+"));
  EXPECT_THAT(lines[1], MatchesRegex("http listening on 127.0.0.1:[0-9]+"));
  auto stub = v1::GemmService::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", PortOf(lines[0])),
                          grpc::InsecureChannelCredentials()));
  const v1::SgemmRequest request = testing::RandomRequest(4, 5, 6, 1);
  grpc::ClientContext context;
  v1::SgemmResponse response;
  const grpc::Status status = stub->Sgemm(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
  EXPECT_EQ(testing::HttpGet(PortOf(lines[1]), "/readyz").status, 200);
  const auto asked = std::chrono::steady_clock::now();
  program.Signal(GetParam());
  EXPECT_EQ(program.Wait(), 0);
  // This process holds a connection open and does nothing with it.
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(3));
  EXPECT_THAT(program.error,
              AllOf(HasSubstr("stopped"), Not(HasSubstr("warn"))));
}

INSTANTIATE_TEST_SUITE_P(Signals, ProgramSignalTest,
                         ::testing::Values(SIGTERM, SIGINT));

TEST(ProgramTest, ASecondSignalEndsItAtOnce) {
  ChildProgram program(With({"--drain-delay=1h"}));
  ASSERT_EQ(program.ReadLines(2).size(), 2u);
  program.Signal(SIGTERM);
  // The first must have been taken before the second is sent.
  const int http = PortOf(program.ReadLines(2)[1]);
  ASSERT_TRUE(testing::Eventually(
      [http] { return testing::HttpGet(http, "/readyz").status == 503; }));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 128 + SIGTERM);
}

// Nothing was served, so nothing went wrong; as soon as it listens to signals.
TEST(ProgramTest, ASignalBeforeItIsReadyEndsItAtOnceAndWell) {
  ChildProgram program(kFreePorts);
  ASSERT_TRUE(testing::Eventually([&] { return program.Catches(SIGTERM); }));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0) << program.error;
}

TEST(ProgramTest, BadFlagsAreOneLineAndExitCode2) {
  ExpectRefusal({"--no-such-flag"}, 2, "unknown flag --no-such-flag");
  ExpectRefusal({"--max-streams=many"}, 2, "--max-streams: \"many\"");
  ExpectRefusal({"--listen=0.0.0.0:0"}, 2, "--insecure");
  ExpectRefusal({"--config=/nonexistent.toml"}, 2, "/nonexistent.toml");
  ExpectRefusal({}, 2, "GEMMD_LOG_LEVEL: \"loud\"", {"GEMMD_LOG_LEVEL=loud"});
  ExpectRefusal({"--listen"}, 2, "--listen: one value is wanted");
  ExpectRefusal(
      {"--kernel=a\x1b[31m\nb", "--listen=127.0.0.1:0", "--http-listen="}, 2,
      "a\\u001b[31m\\nb");
  ExpectRefusal(With({"--devices=9"}), 2, "--devices");
  ExpectRefusal(With({"--unix-socket=/nonexistent/g.sock"}), 2,
                "/nonexistent/: No such file");
  // One line, whatever is logged when it starts.
  ExpectRefusal(With({"--kernel=magic"}), 2, "--kernel");
}

TEST(ProgramTest, APortInUseIsOneLineAndExitCode1) {
  ChildProgram first(kFreePorts);
  const auto lines = first.ReadLines(2);
  ASSERT_EQ(lines.size(), 2u) << first.error;
  for (const char* flag : {"listen", "http-listen"}) {
    const bool grpc = std::string(flag) == "listen";
    const std::string address =
        absl::StrCat("127.0.0.1:", PortOf(lines[grpc ? 0 : 1]));
    ExpectRefusal({"--backend=cpu",
                   grpc ? "--http-listen=127.0.0.1:0" : "--listen=127.0.0.1:0",
                   absl::StrCat("--", flag, "=", address)},
                  1, address);
  }
}

TEST(ProgramTest, ABackendThatIsNotThereIsOneLineAndExitCode1) {
  // As many devices as no machine has: another code where there is one.
  ChildProgram program({"--listen=127.0.0.1:0",
                        "--http-listen=", "--backend=cuda", "--devices=999"});
  const int code = program.Wait();
  EXPECT_TRUE(code == 1 || code == 2) << code;
  EXPECT_EQ(std::count(program.error.begin(), program.error.end(), '\n'), 1)
      << program.error;
}

TEST(ProgramTest, HelpAndVersionGoToStdout) {
  ChildProgram help({"--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.output, HasSubstr("--drain-timeout"));
  EXPECT_EQ(help.error, "");
  ChildProgram version({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_THAT(version.output, ::testing::StartsWith("gemmd "));
}

TEST(ProgramTest, LogsWhatIsMissingWithTheReason) {
  ChildProgram program(With({"--log-format=json"}));
  ASSERT_EQ(program.ReadLines(2).size(), 2u);
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.error, HasSubstr("\"message\":\"kernels not available\","
                                       "\"reason\":\""));
  EXPECT_THAT(program.error, HasSubstr("\"message\":\"device ready\""));
  for (const absl::string_view line :
       absl::StrSplit(program.error, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(line.front() == '{' && line.back() == '}') << line;
  }
}

}  // namespace
}  // namespace gemmd
