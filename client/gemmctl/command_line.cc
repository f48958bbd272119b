#include "client/gemmctl/command_line.h"

#include <CLI/CLI.hpp>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 done, 1 a failed result, 2 wrong usage or local file, 3 no "
    "server\nor one that drains, 4 no answer in time, 5 refused by the server.";

const std::map<std::string, SgemmCall::Precision>& Precisions() {
  static const auto& names = *new std::map<std::string, SgemmCall::Precision>{
      {"fp32", SgemmCall::Precision::kFp32},
      {"fp32_emulated", SgemmCall::Precision::kFp32Emulated},
      {"tf32", SgemmCall::Precision::kTf32},
  };
  return names;
}

// "1.5", "1.5s", "200ms", "2m" -> a duration above 0.
absl::Duration ReadDuration(const std::string& flag, const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = absl::ZeroDuration();
  }
  if (duration > absl::ZeroDuration()) return duration;
  throw CLI::ValidationError(absl::StrCat(
      flag, ": \"", text, "\" is no time above 0 (5, 5s, 200ms, 1.5m)"));
}

void AddDuration(CLI::App* app, const std::string& flag, absl::Duration* to,
                 const std::string& description) {
  app->add_option_function<std::string>(
         flag,
         [flag, to](const std::string& text) {
           *to = ReadDuration(flag, text);
         },
         description)
      ->type_name("TIME")
      ->default_str(absl::FormatDuration(*to));
}

// "1024" or "64x64x4096" -> m, n, k.
void ReadShape(const std::string& text, BenchOptions* bench) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) sizes.resize(4);
    sizes.push_back(size);
  }
  if (sizes.size() == 1) sizes.resize(3, sizes[0]);
  if (sizes.size() != 3) {
    throw CLI::ValidationError(
        absl::StrCat("--shape: \"", text,
                     "\" is no shape (1024, or m x n x k as 64x64x4096)"));
  }
  bench->m = sizes[0];
  bench->n = sizes[1];
  bench->k = sizes[2];
}

void AddProductFlags(CLI::App* app, CommandLine* line, bool* transpose_a,
                     bool* transpose_b) {
  app->add_flag("--transpose-a", *transpose_a, "Multiply by A transposed");
  app->add_flag("--transpose-b", *transpose_b, "Multiply by B transposed");
  app->add_option("--kernel", line->kernel,
                  "A kernel of `gemmctl kernels`; the server's choice if none");
  app->add_option_function<std::string>(
         "--precision",
         [line](const std::string& name) {
           const auto found = Precisions().find(name);
           if (found == Precisions().end()) {
             throw CLI::ValidationError(
                 absl::StrCat("--precision: \"", name,
                              "\" is no precision (fp32, fp32_emulated, "
                              "tf32)"));
           }
           line->precision = found->second;
         },
         "The arithmetic wanted, at least: fp32, fp32_emulated, tf32")
      ->default_str("fp32");
}

void AddMultiply(CLI::App* app, CommandLine* line) {
  MultiplyOptions& to = line->multiply;
  app->add_option("A", to.a, "The left operand, a .npy file of float32")
      ->required();
  app->add_option("B", to.b, "The right operand")->required();
  app->add_option("-o,--output", to.output, "The product's .npy file")
      ->required();
  app->add_option("--alpha", to.alpha, "C = alpha A B + beta C")
      ->capture_default_str();
  app->add_option("--beta", to.beta, "With --c")->capture_default_str();
  app->add_option("--c", to.c, "A matrix to add, a .npy file");
  AddProductFlags(app, line, &to.transpose_a, &to.transpose_b);
}

void AddBench(CLI::App* app, CommandLine* line) {
  BenchOptions& to = line->bench;
  app->add_option_function<std::string>(
         "--shape", [&to](const std::string& text) { ReadShape(text, &to); },
         "One size, or m x n x k")
      ->type_name("N|MxNxK")
      ->default_str("1024");
  app->add_option("--concurrency", to.concurrency, "Products in flight")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  AddDuration(app, "--duration", &to.duration, "How long to measure");
  app->add_option("--count", to.count, "Products to measure, not a time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  AddDuration(app, "--warmup", &to.warmup, "Before measuring");
  AddProductFlags(app, line, &to.transpose_a, &to.transpose_b);
}

// The flags of every command.
void AddCommonFlags(CLI::App* app, CommandLine* line) {
  app->add_option("--server", line->client.address, "host:port or unix:/path")
      ->envname("GEMMD_SERVER")
      ->capture_default_str();
  AddDuration(app, "--timeout", &line->client.timeout,
              "For one answer, retries included");
  app->add_option("--connections", line->client.connections,
                  "Connections to the server")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option_function<int>(
         "--retries",
         [line](int retries) { line->client.retry.max_attempts = retries + 1; },
         "When there is no server or its queue is full")
      ->check(CLI::Range(0, 1000))
      ->default_str(absl::StrCat(line->client.retry.max_attempts - 1));
  app->add_flag("--json", line->json, "The result as JSON on stdout");
}

constexpr struct {
  const char* name;
  Command command;
  const char* description;
} kCommands[] = {
    {"multiply", Command::kMultiply, "Multiplies two .npy files into a third"},
    {"bench", Command::kBench, "Measures a server with random products"},
    {"info", Command::kInfo, "What the server is, and its limits"},
    {"kernels", Command::kKernels,
     "The server's kernels, those that cannot run there too"},
    {"health", Command::kHealth, "Exit code 0 if the server is serving"},
};

void AddCommands(CLI::App* app, CommandLine* line) {
  app->require_subcommand(0, 1);
  app->fallthrough();  // inherited: common flags may follow the command
  for (const auto& [name, command, description] : kCommands) {
    app->add_subcommand(name, description);
  }
  AddMultiply(app->get_subcommand("multiply"), line);
  AddBench(app->get_subcommand("bench"), line);
  app->get_subcommand("health")->add_option(
      "--service", line->health_service,
      "\"\", liveness, readiness or a gRPC service");
}

// The command that was named, or "".
std::string ParsedCommand(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed =
      app.get_subcommands([](const CLI::App* sub) { return sub->parsed(); });
  return parsed.empty() ? "" : parsed.front()->get_name();
}

// CLI11's message in one line, and where to look further.
absl::Status UsageError(const CLI::ParseError& error,
                        const std::string& command) {
  std::string message = error.what();
  const size_t end = message.find('\n');
  if (end != std::string::npos) message.resize(end);
  return absl::InvalidArgumentError(absl::StrCat(message, " (see gemmctl",
                                                 command.empty() ? "" : " ",
                                                 command, " --help)"));
}

}  // namespace

std::string PrecisionName(SgemmCall::Precision precision) {
  for (const auto& [name, value] : Precisions()) {
    if (value == precision) return name;
  }
  return "unknown";
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc,
                                             const char* const* argv) {
  CommandLine line;
  CLI::App app("Multiplies matrices on a gemmd server.", "gemmctl");
  app.footer(kFooter);
  app.set_version_flag("--version", "gemmctl " GEMMD_VERSION);
  AddCommonFlags(&app, &line);
  AddCommands(&app, &line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    line.text = absl::StrCat(version.what(), "\n");
    return line;
  } catch (const CLI::CallForHelp&) {
    line.text = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    return UsageError(error, ParsedCommand(app));
  }
  for (const auto& [name, command, description] : kCommands) {
    if (ParsedCommand(app) == name) line.command = command;
  }
  if (line.command == Command::kPrint) {
    return absl::InvalidArgumentError(
        "a command is wanted: multiply, bench, info, kernels or health (see "
        "gemmctl --help)");
  }
  return line;
}

}  // namespace gemmd::gemmctl
