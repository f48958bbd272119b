#include "server/options.h"

#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/listen_address.h"
#include "server/misspelt_flag.h"
#include "server/observe/build_info.h"
#include "server/option_flags.h"

namespace gemmd {
namespace {

constexpr const char* kConfigEnvironment = "GEMMD_CONFIG";

// A value and where it stood, for messages: "--listen", "GEMMD_LISTEN",
// "listen in gemmd.toml".
struct Given {
  std::string value;
  std::string where;
};
using GivenByName = std::map<std::string, Given>;

absl::Status Usage(absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, " (gemmd --help lists the flags)"));
}

// The arguments as CLI11 understood them.
struct Arguments {
  GivenByName given;
  std::string config;
  bool exit = false;
  std::string output;
};

// CLI11 takes the empty value of "--listen=" for a missing one.
std::vector<std::string> SplitEmptyValues(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = 0; i < argc; ++i) {
    absl::string_view word = argv[i];
    const bool empty_value =
        absl::StartsWith(word, "--") && absl::ConsumeSuffix(&word, "=");
    words.emplace_back(word);
    if (empty_value) words.emplace_back();
  }
  return words;
}

absl::StatusOr<Arguments> ReadArguments(int argc, const char* const* argv) {
  CLI::App app("Multiplies matrices for other programs over gRPC.", "gemmd");
  app.footer(
      "Each flag also reads GEMMD_<FLAG> (--max-streams: GEMMD_MAX_STREAMS) "
      "and\nits name as a key of the --config file. A flag beats the "
      "environment, the\nenvironment beats the file. Exit codes: 0 stopped as "
      "asked, 1 could not start,\n2 bad flags, 3 a device failed, 128 + n "
      "ended at "
      "once by a second signal n.");
  app.get_formatter()->column_width(36);
  app.allow_extras();
  app.set_help_flag("--help", "Print this and exit");
  bool version = false;
  app.add_flag("--version", version, "Print the version and exit");
  Arguments arguments;
  app.add_option("--config", arguments.config,
                 "A file of flags, one `name = value` a line")
      ->type_name("FILE");
  std::map<std::string, std::string> values;
  for (const OptionFlag& flag : OptionFlags()) {
    const std::string name = absl::StrCat("--", flag.name);
    const std::string help =
        absl::StrCat(flag.help, " [", flag.default_text, "]");
    if (flag.value_name.empty()) {
      app.add_flag(name, values[flag.name], help);
    } else {
      app.add_option(name, values[flag.name], help)->type_name(flag.value_name);
    }
  }
  const std::vector<std::string> words = SplitEmptyValues(argc, argv);
  std::vector<const char*> pointers;
  pointers.reserve(words.size());
  for (const std::string& word : words) pointers.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::CallForHelp&) {
    arguments.exit = true;
    arguments.output = app.help();
    return arguments;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string name =
        absl::StrCat(absl::string_view(error.what())
                         .substr(0, absl::string_view(error.what()).find(':')));
    return Usage(absl::StrCat(name, ": one value is wanted, as ", name,
                              "=VALUE, and once"));
  } catch (const CLI::ParseError& error) {
    return Usage(error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    return Usage(absl::StrCat(
        absl::StartsWith(extras[0], "-") ? "unknown flag " : "unexpected word ",
        extras[0]));
  }
  if (version) {
    arguments.exit = true;
    arguments.output =
        absl::StrCat("gemmd ", BuildVersion(), " (revision ", BuildRevision(),
                     ", CUDA ", BuildCuda(), ", ", BuildCompiler(), ")\n");
  }
  for (const auto& [name, value] : values) {
    const std::string flag = absl::StrCat("--", name);
    if (app.count(flag) > 0) arguments.given[name] = {value, flag};
  }
  return arguments;
}

absl::Status AddEnvironment(GivenByName* given) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const absl::string_view variable = text.substr(0, text.find('='));
    if (const OptionFlag* flag = MisspeltFlag(variable)) {
      return Usage(absl::StrCat(variable, " is the variable of no flag; --",
                                flag->name, " has ", flag->environment_name()));
    }
  }
  for (const OptionFlag& flag : OptionFlags()) {
    const std::string name = flag.environment_name();
    if (const char* value = std::getenv(name.c_str())) {
      given->emplace(flag.name, Given{value, name});
    }
  }
  return absl::OkStatus();
}

// Some editors begin UTF-8 files with a byte order mark of three bytes.
std::string FirstBytes(std::ifstream& file) {
  std::string bytes(3, '\0');
  file.read(bytes.data(), 3);
  bytes.resize(file.gcount());
  file.clear();
  file.seekg(0);
  return bytes;
}

absl::Status AddFile(const std::string& path, GivenByName* given) {
  std::ifstream file(path);
  // A directory opens, but does not read.
  if (!file || (file.peek() == EOF && !file.eof())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--config ", path, ": cannot be read: ", std::strerror(errno)));
  }
  if (absl::StartsWith(FirstBytes(file), "\xef\xbb\xbf")) file.seekg(3);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config ", path, ": ", error.what()));
  }
  GivenByName from_file;
  for (const CLI::ConfigItem& item : items) {
    const auto refuse = [&](absl::string_view problem) {
      return absl::InvalidArgumentError(
          absl::StrCat("--config ", path, ": ", problem));
    };
    if (!item.parents.empty()) {
      return refuse(absl::StrCat("section [", absl::StrJoin(item.parents, "."),
                                 "]: there are none, only `name = value`"));
    }
    const OptionFlag* flag = FindOptionFlag(item.name);
    if (flag == nullptr) {
      return refuse(absl::StrCat("unknown key \"", item.name,
                                 "\" (a key is a flag without its --)"));
    }
    // CLI11 joins the values of a key that is there twice.
    if (item.inputs.size() != 1 && !flag->list) {
      return refuse(absl::StrCat("key \"", item.name, "\" has ",
                                 item.inputs.size(),
                                 " values; one is wanted, once"));
    }
    from_file[item.name] = {absl::StrJoin(item.inputs, ","),
                            absl::StrCat(item.name, " in ", path)};
  }
  given->merge(from_file);  // what is given already stays
  return absl::OkStatus();
}

// The two would be refused one port, the second only once devices are warm.
absl::Status CheckPorts(const ListenAddress& grpc,
                        const ServerOptions& options) {
  if (options.http_listen.empty() || grpc.port == 0) return absl::OkStatus();
  const auto http = ParseListenAddress(options.http_listen);
  if (http->port != grpc.port ||
      (http->host != grpc.host && !http->any() && !grpc.any())) {
    return absl::OkStatus();
  }
  return Usage(absl::StrCat("--listen ", options.listen, " and --http-listen ",
                            options.http_listen,
                            " are one port: give them two"));
}

// What no single flag can tell.
absl::Status CheckTogether(const ServerOptions& options) {
  if (options.listen.empty() && options.unix_socket.empty()) {
    return Usage("--listen and --unix-socket are both empty: give one");
  }
  if (options.unix_socket.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return Usage(absl::StrCat("--unix-socket: a path of ",
                              options.unix_socket.size(), " bytes; at most ",
                              sizeof(sockaddr_un{}.sun_path) - 1, " can be"));
  }
  if (options.backend == "cpu" && !options.devices.empty()) {
    return Usage("--devices names CUDA devices, and --backend cpu uses none");
  }
  if (options.channelz && !options.auth_token_file.empty()) {
    return Usage(
        "--channelz answers everybody, also those whom --auth-token-file "
        "keeps out: give one of them");
  }
  if (options.listen.empty()) return absl::OkStatus();
  const auto grpc = ParseListenAddress(options.listen);
  const bool tls = !options.tls_cert.empty();
  if (!grpc->loopback() && !tls && !options.insecure) {
    return Usage(absl::StrCat(
        "--listen ", options.listen,
        " would offer plaintext gRPC beyond this machine: listen on "
        "127.0.0.1, give --tls-cert and --tls-key, or accept that with "
        "--insecure"));
  }
  return CheckPorts(*grpc, options);
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc,
                                             const char* const* argv) {
  absl::StatusOr<Arguments> arguments = ReadArguments(argc, argv);
  if (!arguments.ok()) return arguments.status();
  CommandLine line;
  if (arguments->exit) {
    line.exit = true;
    line.output = arguments->output;
    return line;
  }
  GivenByName& given = arguments->given;
  absl::Status status = AddEnvironment(&given);
  if (!status.ok()) return status;
  if (const char* config = std::getenv(kConfigEnvironment);
      config != nullptr && arguments->config.empty()) {
    arguments->config = config;
  }
  if (!arguments->config.empty()) {
    status = AddFile(arguments->config, &given);
    if (!status.ok()) return status;
  }
  for (const OptionFlag& flag : OptionFlags()) {
    const auto found = given.find(flag.name);
    if (found == given.end()) continue;
    status = flag.set(found->second.value, &line.options);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(found->second.where, ": ", status.message()));
    }
  }
  status = CheckTogether(line.options);
  if (!status.ok()) return status;
  return line;
}

}  // namespace gemmd
