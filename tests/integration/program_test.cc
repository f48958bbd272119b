// The program as an operator meets it: its lines, signals and exit codes.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

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
  // It may have been quicker than the signal.
  EXPECT_THAT(program.error,
              ::testing::AnyOf(HasSubstr("asked to stop before it was ready\n"),
                               HasSubstr("stopped")));
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

constexpr char kTraceparent[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// A product whose request id is `id`, by the kernel `kernel`.
void MultiplyTraced(int port, const std::string& id,
                    const std::string& traceparent,
                    const std::string& kernel = "") {
  auto stub = v1::GemmService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  v1::SgemmRequest request = testing::RandomRequest(4, 5, 6, 1);
  request.set_request_id(id);
  request.set_kernel(kernel);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", traceparent);
  v1::SgemmResponse response;
  EXPECT_EQ(stub->Sgemm(&context, request, &response).ok(), kernel.empty());
  grpc::ClientContext stream_context;
  stream_context.AddMetadata("traceparent", traceparent);
  auto stream = stub->SgemmStream(&stream_context);
  v1::SgemmStreamRequest item;
  *item.mutable_request() = request;
  item.mutable_request()->set_request_id(absl::StrCat(id, "-item"));
  v1::SgemmStreamResponse answer;
  EXPECT_TRUE(stream->Write(item) && stream->Read(&answer));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ProgramTest, SighupTurnsOnALineForEveryRequestWithItsTrace) {
  const std::string config =
      absl::StrCat(::testing::TempDir(), getpid(), "_log.conf");
  const auto set_level = [&](const char* level) {
    std::ofstream(config) << "log-level = " << level << "\n";
  };
  set_level("info");
  ChildProgram program(With({absl::StrCat("--config=", config)}));
  const std::vector<std::string> lines = program.ReadLines(2);
  ASSERT_EQ(lines.size(), 2u) << program.error;
  const int port = PortOf(lines[0]);

  // What fails has its line in any case.
  MultiplyTraced(port, "good-1", kTraceparent);
  MultiplyTraced(port, "bad-1", kTraceparent, "magic");
  for (const char* id : {"bad-1 ", "bad-1-item "}) {
    EXPECT_THAT(program.ReadErrorLine(absl::StrCat("request_id=", id)),
                AllOf(HasSubstr(" info  request failed "),
                      HasSubstr(" code=NOT_FOUND "), HasSubstr(" shape=4x5x6 "),
                      HasSubstr(" trace_id=0af7651916cd43dd8448eb211c80319c "
                                "span_id=b7ad6b7169203331")));
  }
  EXPECT_THAT(program.error, Not(HasSubstr("good-1")));

  set_level("debug");
  program.Signal(SIGHUP);
  EXPECT_THAT(program.ReadErrorLine("read anew"), HasSubstr("log_level=debug"));
  MultiplyTraced(port, "good-2", kTraceparent);
  for (const char* id : {"good-2 ", "good-2-item "}) {
    EXPECT_THAT(
        program.ReadErrorLine(absl::StrCat("request_id=", id)),
        AllOf(HasSubstr(" debug request "), HasSubstr(" code=OK "),
              HasSubstr(" shape=4x5x6 kernel=openblas device=0 batch=1 "),
              ::testing::ContainsRegex(" queue=[0-9.]+ h2d=[0-9.]+ "
                                       "compute=[0-9.]+ d2h=[0-9.]+ "
                                       "encode=[0-9.]+ "),
              HasSubstr(" trace_id=0af7651916cd43dd8448eb211c80319c ")));
  }
  // One that is malformed is as good as none.
  MultiplyTraced(port, "good-3", "00-0af7651916cd43dd8448eb211c80319c-01");
  EXPECT_THAT(program.ReadErrorLine("request_id=good-3 "),
              AllOf(HasSubstr(" code=OK "), Not(HasSubstr("trace_id"))));

  set_level("loud");
  program.Signal(SIGHUP);
  EXPECT_THAT(program.ReadErrorLine("not read anew"), HasSubstr("loud"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
}

}  // namespace
}  // namespace gemmd
