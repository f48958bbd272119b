#include "server/options.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/misspelt_flag.h"
#include "server/option_flags.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A flag with two good values, one bad one, and how to see the value back.
struct FlagCase {
  const char* name;
  const char* first;
  const char* second;
  const char* bad;     // nullptr: every text is good
  const char* wanted;  // part of the message for `bad`
  std::function<std::string(const ServerOptions&)> get;
};

template <typename T>
std::string Text(const T& value) {
  if constexpr (std::is_same_v<T, absl::Duration>) {
    return absl::FormatDuration(value);
  } else if constexpr (std::is_same_v<T, std::vector<int>>) {
    std::string text;
    for (const int i : value) absl::StrAppend(&text, i, ";");
    return text;
  } else if constexpr (std::is_same_v<T, std::optional<size_t>>) {
    return value ? absl::StrCat(*value) : "auto";
  } else {
    return absl::StrCat(value);
  }
}

#define GET(field) [](const ServerOptions& o) { return Text(o.field); }

const FlagCase kCases[] = {
    {"listen", "127.0.0.1:1", "[::1]:2", "127.0.0.1", "want HOST:PORT",
     GET(listen)},
    {"unix-socket", "/run/a", "/run/b", nullptr, "", GET(unix_socket)},
    {"shared-memory", "on", "false", "2", "one of on, off", GET(shared_memory)},
    {"http-listen", "127.0.0.1:1", "", "here:http", "want HOST:PORT",
     GET(http_listen)},
    {"insecure", "true", "off", "maybe", "one of on, off", GET(insecure)},
    {"tls-cert", "/run/a", "/run/b", "", "leave it out", GET(tls_cert)},
    {"tls-key", "/run/a", "/run/b", "", "leave it out", GET(tls_key)},
    {"tls-client-ca", "/run/a", "/run/b", "", "leave it out",
     GET(tls_client_ca)},
    {"auth-token-file", "/run/a", "/run/b", "", "leave it out",
     GET(auth_token_file)},
    {"backend", "cpu", "cuda", "tpu", "one of auto, cpu, cuda", GET(backend)},
    {"devices", "0,1", "all", "0,x", "\"all\" or device numbers", GET(devices)},
    {"kernel", "naive", "auto", nullptr, "", GET(kernel)},
    {"selection-cache", "/a", "/b", nullptr, "", GET(selection_cache)},
    {"tune", "true", "off", "maybe", "one of on, off", GET(tune)},
    {"streams-per-device", "3", "0", "-1", "from 0 to",
     GET(streams_per_device)},
    {"max-batch-requests", "1", "32", "0", "from 1 to",
     GET(max_batch_requests)},
    {"max-queue-delay", "5ms", "0", "5", "with its unit", GET(max_queue_delay)},
    {"max-row-hold", "1ms", "0", "5", "with its unit", GET(max_row_hold)},
    {"split-gflop", "1", "0", "-1", "from 0 to", GET(split_gflop)},
    {"queue-max-requests", "7", "8", "many", "a whole number",
     GET(queue_max_requests)},
    {"queue-max-bytes", "1GiB", "2048KiB", "1GB", "a size",
     GET(queue_max_bytes)},
    {"max-inline-bytes", "1MiB", "2097152", "2GiB",
     "a size from 64KiB to 1900MiB", GET(max_inline_bytes)},
    {"pinned-pool-bytes", "64MiB", "1TiB", "1.5GiB", "a size",
     GET(pinned_pool_bytes)},
    {"matrix-store-bytes", "8GiB", "0", "half", "\"auto\" or a size",
     GET(matrix_store_bytes)},
    {"matrix-ttl", "1h", "30s", "0s", "a duration from 100ms", GET(matrix_ttl)},
    {"completion-queues", "1", "4", "-1", "a whole number",
     GET(completion_queues)},
    {"busy-poll", "200us", "0", "2s", "a duration from 0", GET(busy_poll)},
    {"device-timeout", "2m", "10ms", "0s", "a duration from 10ms",
     GET(device_timeout)},
    {"drain-delay", "2s", "1m30s", "-2s", "a duration from 0",
     GET(drain_delay)},
    {"drain-timeout", "10s", "1h", "inf", "a duration from 0",
     GET(drain_timeout)},
    {"max-connection-age", "30m", "inf", "0s", "a duration from 1s",
     GET(max_connection_age)},
    {"max-streams", "10", "20", "0", "from 1 to", GET(max_streams)},
    {"channelz", "on", "false", "2", "one of on, off", GET(channelz)},
    {"metrics", "off", "on", "no", "one of on, off", GET(metrics)},
    {"log-level", "debug", "error", "loud", "trace, debug, info, warn, error",
     GET(log_level)},
    {"log-format", "json", "text", "xml", "one of text, json", GET(log_format)},
};

using Pairs = std::vector<std::pair<const char*, const char*>>;

class OptionsTest : public ::testing::Test {
 protected:
  ~OptionsTest() override {
    for (const std::string& name : environment_) unsetenv(name.c_str());
    if (!file_.empty()) unlink(file_.c_str());
  }

  void SetEnvironment(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    environment_.insert(name);
  }

  std::string WriteFile(const std::string& text) {
    if (file_.empty()) {
      file_ = absl::StrCat(::testing::TempDir(), "gemmd-options-", getpid());
    }
    std::ofstream(file_) << text;
    return file_;
  }

  static absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"gemmd"};
    for (const std::string& argument : arguments) {
      argv.push_back(argument.c_str());
    }
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  }

  static std::string Error(std::vector<std::string> arguments) {
    const auto line = Parse(std::move(arguments));
    EXPECT_FALSE(line.ok());
    if (line.ok()) return "";
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(absl::StrContains(line.status().message(), '\n'))
        << "more than one line: " << line.status();
    return std::string(line.status().message());
  }

 private:
  std::set<std::string> environment_;
  std::string file_;
};

std::string Read(const FlagCase& c, const char* value) {
  ServerOptions options;
  EXPECT_TRUE(FindOptionFlag(c.name)->set(value, &options).ok());
  return c.get(options);
}

TEST_F(OptionsTest, EveryFlagHasACaseHere) {
  std::set<std::string> cases;
  for (const FlagCase& c : kCases) cases.insert(c.name);
  std::set<std::string> flags;
  for (const OptionFlag& flag : OptionFlags()) flags.insert(flag.name);
  EXPECT_EQ(cases, flags);
}

TEST_F(OptionsTest, AFlagBeatsTheEnvironmentAndThatTheFile) {
  for (const FlagCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::string variable = absl::AsciiStrToUpper(
        absl::StrCat("GEMMD_", absl::StrReplaceAll(c.name, {{"-", "_"}})));
    const std::string first = Read(c, c.first);
    const std::string second = Read(c, c.second);
    ASSERT_NE(first, second) << "the case cannot tell its values apart";
    const std::string as_flag = absl::StrCat("--", c.name, "=", c.first);
    const std::string config = absl::StrCat(
        "--config=", WriteFile(absl::StrCat(c.name, " = \"", c.first, "\"\n")));
    // An IPv6 loopback or an unset switch never asks for --insecure.
    const auto get = [&](std::vector<std::string> arguments) {
      const auto line = Parse(std::move(arguments));
      EXPECT_TRUE(line.ok()) << line.status();
      return line.ok() ? c.get(line->options) : "";
    };
    EXPECT_EQ(get({as_flag}), first);
    EXPECT_EQ(get({config}), first);
    SetEnvironment(variable, c.second);
    EXPECT_EQ(get({}), second);
    EXPECT_EQ(get({config}), second);
    EXPECT_EQ(get({as_flag}), first);
    EXPECT_EQ(get({as_flag, config}), first);
    unsetenv(variable.c_str());
  }
}

TEST_F(OptionsTest, ABadValueIsOneLineThatNamesItsPlaceAndWhatIsWanted) {
  for (const FlagCase& c : kCases) {
    if (c.bad == nullptr) continue;
    SCOPED_TRACE(c.name);
    const std::string quoted = absl::StrCat("\"", c.bad, "\"");
    EXPECT_THAT(Error({absl::StrCat("--", c.name, "=", c.bad)}),
                AllOf(HasSubstr(absl::StrCat("--", c.name, ": ", quoted)),
                      HasSubstr(c.wanted)));
    const std::string path =
        WriteFile(absl::StrCat(c.name, " = \"", c.bad, "\"\n"));
    EXPECT_THAT(
        Error({"--config", path}),
        AllOf(HasSubstr(absl::StrCat(c.name, " in ", path, ": ", quoted)),
              HasSubstr(c.wanted)));
    const std::string variable = absl::AsciiStrToUpper(
        absl::StrCat("GEMMD_", absl::StrReplaceAll(c.name, {{"-", "_"}})));
    SetEnvironment(variable, c.bad);
    EXPECT_THAT(Error({}),
                AllOf(HasSubstr(absl::StrCat(variable, ": ", quoted)),
                      HasSubstr(c.wanted)));
    unsetenv(variable.c_str());
  }
}

TEST_F(OptionsTest, DefaultsAreThoseOfTheStruct) {
  const auto line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  for (const FlagCase& c : kCases) {
    EXPECT_EQ(c.get(line->options), c.get(ServerOptions{})) << c.name;
  }
  // And those that --help shows can be written as shown.
  for (const OptionFlag& flag : OptionFlags()) {
    if (flag.default_text.empty()) continue;  // --help shows none
    ServerOptions options;
    EXPECT_TRUE(flag.set(flag.default_text, &options).ok()) << flag.name;
  }
}

TEST_F(OptionsTest, UnknownFlagsWordsAndKeysAreRefusedByName) {
  EXPECT_THAT(Error({"--port", "80"}),
              AllOf(HasSubstr("unknown flag --port"), HasSubstr("--help")));
  EXPECT_THAT(Error({"--listn=127.0.0.1:1"}),
              HasSubstr("unknown flag --listn"));
  EXPECT_THAT(Error({"-x"}), HasSubstr("unknown flag -x"));
  EXPECT_THAT(Error({"serve"}), HasSubstr("unexpected word serve"));
  EXPECT_THAT(Error({"--listen"}), HasSubstr("--listen"));
  EXPECT_THAT(Error({"--kernel=a", "--kernel=b"}), HasSubstr("--kernel"));
  EXPECT_THAT(Error({"--config", WriteFile("listne = \"127.0.0.1:1\"\n")}),
              HasSubstr("unknown key \"listne\""));
  EXPECT_THAT(Error({"--config", WriteFile("config = \"x\"\n")}),
              HasSubstr("unknown key \"config\""));
  EXPECT_THAT(Error({"--config", WriteFile("[server]\nkernel = \"x\"\n")}),
              HasSubstr("section [server]"));
  EXPECT_THAT(
      Error({"--config", WriteFile("kernel = \"x\"\nkernel = \"y\"\n")}),
      HasSubstr("\"kernel\" has 2 values"));
  EXPECT_THAT(Error({"--config", WriteFile("\x7f"
                                           "ELF garbage\n")}),
              HasSubstr("unknown key"));
}

TEST_F(OptionsTest, AMissingOrASecondValueIsSaidInOurWords) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--listen"}, {"--kernel=a", "--kernel=b"}, {"--config"}}) {
    const std::string error = Error(arguments);
    EXPECT_THAT(error, HasSubstr("one value is wanted, as --")) << error;
  }
}

TEST_F(OptionsTest, AByteOrderMarkIsNoPartOfAKey) {
  const auto line =
      Parse({"--config", WriteFile("\xef\xbb\xbfkernel = \"x\"\n")});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.kernel, "x");
  EXPECT_TRUE(Parse({"--config", WriteFile("\xef\xbb\xbf")}).ok());
}

TEST_F(OptionsTest, DevicesOfABackendThatHasNoneAreRefused) {
  EXPECT_THAT(Error({"--backend=cpu", "--devices=0"}), HasSubstr("--devices"));
}

TEST_F(OptionsTest, AConfigFileThatCannotBeReadSaysWhy) {
  EXPECT_THAT(
      Error({"--config", "/nonexistent/gemmd.toml"}),
      AllOf(HasSubstr("/nonexistent/gemmd.toml"), HasSubstr("No such file")));
  EXPECT_THAT(Error({"--config", "/tmp"}), HasSubstr("cannot be read"));
  SetEnvironment("GEMMD_CONFIG", "/nonexistent/env.toml");
  EXPECT_THAT(Error({}), HasSubstr("/nonexistent/env.toml"));
}

TEST_F(OptionsTest, AConfigFileHasCommentsBareNumbersListsAndSwitches) {
  const auto line = Parse({"--config", WriteFile("# a comment\n"
                                                 "\n"
                                                 "max-streams = 7\n"
                                                 "devices = [0, 2]\n"
                                                 "insecure = true\n"
                                                 "http-listen = \"\"\n")});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.max_streams, 7);
  EXPECT_THAT(line->options.devices, ::testing::ElementsAre(0, 2));
  EXPECT_TRUE(line->options.insecure);
  EXPECT_EQ(line->options.http_listen, "");
  EXPECT_TRUE(Parse({"--config", WriteFile("")}).ok());
}

TEST_F(OptionsTest, PlaintextBeyondLoopbackNeedsInsecure) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "192.0.2.1:1", "gpu:1"}) {
    EXPECT_THAT(Error({"--listen", address}),
                AllOf(HasSubstr(address), HasSubstr("--insecure")));
    EXPECT_TRUE(Parse({"--listen", address, "--insecure"}).ok());
  }
  // HTTP is plaintext always and needs no more than its address.
  EXPECT_TRUE(Parse({"--http-listen", "0.0.0.0:1"}).ok());
}

TEST_F(OptionsTest, AddressesMustFitTogether) {
  EXPECT_THAT(Error({"--listen="}), HasSubstr("--unix-socket"));
  EXPECT_TRUE(Parse({"--listen=", "--unix-socket=/tmp/s"}).ok());
  EXPECT_THAT(Error({"--unix-socket", std::string(108, 'x')}),
              HasSubstr("at most 107"));
  for (const auto& [grpc, http] : {std::pair("127.0.0.1:5", "127.0.0.1:5"),
                                   {"0.0.0.0:5", "127.0.0.1:5"},
                                   {"127.0.0.1:5", "0.0.0.0:5"},
                                   {"[::]:5", "[::1]:5"}}) {
    EXPECT_THAT(Error({"--insecure", "--listen", grpc, "--http-listen", http}),
                AllOf(HasSubstr(grpc), HasSubstr(http), HasSubstr("one port")));
  }
  EXPECT_TRUE(
      Parse({"--listen=127.0.0.1:5", "--http-listen=127.0.0.2:5"}).ok());
  EXPECT_TRUE(
      Parse({"--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"}).ok());
}

TEST_F(OptionsTest, AVariableThatIsAllButAFlagsIsRefused) {
  for (const auto& [wrong, right] :
       Pairs{{"GEMMD_LISTN", "GEMMD_LISTEN"},
             {"GEMMD_AUTH_TOKEN_FIL", "GEMMD_AUTH_TOKEN_FILE"},
             {"GEMMD_TLS_CRT", "GEMMD_TLS_CERT"},
             {"GEMMD_MAX_STRAEMS", "GEMMD_MAX_STREAMS"},
             {"GEMMD_LOG-LEVEL", "GEMMD_LOG_LEVEL"}}) {
    SetEnvironment(wrong, "x");
    EXPECT_THAT(Error({}), AllOf(HasSubstr(wrong), HasSubstr(right)));
    unsetenv(wrong);
  }
  // Those of gemmctl, of a Service in Kubernetes, and of builds and tests.
  for (const char* other :
       {"GEMMD_SERVER", "GEMMD_TLS", "GEMMD_TLS_CA", "GEMMD_CLIENT_TLS_CERT",
        "GEMMD_CLIENT_TLS_KEY", "GEMMD_CLIENT_ID", "GEMMD_TLS_SERVER_NAME",
        "GEMMD_TOKEN_FILE", "GEMMD_CONFIG", "GEMMD_SERVICE_HOST", "GEMMD_PORT",
        "GEMMD_PORT_50051_TCP", "GEMMD_CMAKE_ARGS", "GEMMD_CUDA", "GEMMD_TESTS",
        "GEMMD_REVISION", "GEMMD_REQUIRE_GPU", "GEMMD_TEST_SEED"}) {
    EXPECT_EQ(MisspeltFlag(other), nullptr) << other;
  }
  for (const OptionFlag& flag : OptionFlags()) {
    EXPECT_EQ(MisspeltFlag(flag.environment_name()), nullptr) << flag.name;
  }
}

TEST_F(OptionsTest, HelpAndVersionAnswerAndAskForExit) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_TRUE(help->exit);
  for (const OptionFlag& flag : OptionFlags()) {
    EXPECT_THAT(help->output, HasSubstr("--" + flag.name));
  }
  EXPECT_THAT(help->output, AllOf(HasSubstr("GEMMD_"), HasSubstr("--config")));
  const auto version = Parse({"--version"});
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_TRUE(version->exit);
  EXPECT_THAT(version->output, ::testing::StartsWith("gemmd 0."));
}

TEST(ParseBytesTest, ReadsBinaryUnitsAlone) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("1048576"), 1048576u);
  EXPECT_EQ(*ParseBytes("12B"), 12u);
  EXPECT_EQ(*ParseBytes("256MiB"), size_t{256} << 20);
  EXPECT_EQ(*ParseBytes("1 GiB"), size_t{1} << 30);
  EXPECT_EQ(*ParseBytes("3TiB"), size_t{3} << 40);
  for (const char* bad :
       {"", "MiB", "1GB", "1gib", "-1", "+1", "1.5GiB", "0x10", "1 GiB x",
        "99999999999999999999", "16777216TiB"}) {
    const auto bytes = ParseBytes(bad);
    ASSERT_FALSE(bytes.ok()) << bad;
    EXPECT_THAT(bytes.status().message(), HasSubstr(absl::StrCat(bad, "\"")));
  }
}

}  // namespace
}  // namespace gemmd
