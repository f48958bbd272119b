#include "client/gemmctl/command_line.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/completion.h"
#include "client/gemmctl/flags.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 done, 1 a failed result, 2 wrong usage or local file, 3 no "
    "server\nor one that drains, 4 no answer in time, 5 refused by the server.";

void AddMultiply(CLI::App* app, CommandLine* line) {
  MultiplyOptions& to = line->multiply;
  app->add_option("A", to.a,
                  "The left operand: a .npy file of float32, or @ID of a "
                  "matrix on the server")
      ->required();
  app->add_option("B", to.b, "The right operand")->required();
  app->add_option("-o,--output", to.output,
                  "The product's .npy file, or @ID to leave it on the server")
      ->required();
  app->add_option("--alpha", to.alpha, "C = alpha A B + beta C")
      ->capture_default_str();
  app->add_option("--beta", to.beta, "With --c")->capture_default_str();
  app->add_option("--c", to.c, "A matrix to add, likewise");
  AddProductFlags(app, line, &to.transpose_a, &to.transpose_b);
}

void AddUpload(CLI::App* app, MatrixOptions* to) {
  app->add_option("FILE", to->file, "A .npy file of float32")->required();
  app->add_option("--id", to->ids,
                  "Its name there, of [A-Za-z0-9._-]; a random one if none")
      ->expected(1);
  AddDuration(app, "--ttl", &to->ttl, "How long it is kept after its last use");
  app->get_option("--ttl")->default_str("the server's --matrix-ttl");
}

void AddDownload(CLI::App* app, MatrixOptions* to) {
  app->add_option("ID", to->ids, "Of `gemmctl matrices`")
      ->required()
      ->expected(1);
  app->add_option("-o,--output", to->file, "The matrix's .npy file")
      ->required();
}

void AddToken(CLI::App* app, TokenOptions* to) {
  app->add_option("NAME", to->name, "Who has it, of [A-Za-z0-9._:/@-]")
      ->required();
  app->add_option("ROLES", to->roles,
                  "What they may do: compute, info or compute,info")
      ->required();
  app->add_option("-o,--output", to->file,
                  "The file for the token, which only you can read")
      ->required();
}

// The flags of every command.
void AddCommonFlags(CLI::App* app, CommandLine* line) {
  app->add_option("--server", line->client.address, "host:port or unix:/path")
      ->envname("GEMMD_SERVER")
      ->capture_default_str();
  AddDuration(app, "--timeout", &line->client.timeout,
              "For one answer, retries included");
  app->add_option("--connections", line->client.connections,
                  "Connections to the server, at most")
      ->check(CLI::Range(1, 64))
      ->default_str("one for every 4 cores, at most 4");
  app->add_option_function<int>(
         "--retries",
         [line](int retries) { line->client.retry.max_attempts = retries + 1; },
         "When there is no server or its queue is full")
      ->check(CLI::Range(0, 1000))
      ->default_str(absl::StrCat(line->client.retry.max_attempts - 1));
  app->add_option("--client-id", line->client.id,
                  "32 hex digits: whose matrices these are; without, they are "
                  "those of this user on this machine")
      ->envname("GEMMD_CLIENT_ID")
      ->type_name("HEX");
  AddAccessFlags(app, &line->client);
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
    {"upload", Command::kUpload, "Puts a matrix on the server; prints its id"},
    {"download", Command::kDownload, "Brings a matrix back"},
    {"matrices", Command::kMatrices, "Your matrices on the server"},
    {"delete", Command::kDelete, "Drops matrices"},
    {"token", Command::kToken,
     "Makes a token; prints its line for the server's --auth-token-file"},
    {"completion", Command::kPrint,
     "Prints completions: source <(gemmctl completion)"},
};

void AddCommands(CLI::App* app, CommandLine* line) {
  app->require_subcommand(0, 1);
  app->fallthrough();  // inherited: common flags may follow the command
  for (const auto& [name, command, description] : kCommands) {
    app->add_subcommand(name, description);
  }
  AddMultiply(app->get_subcommand("multiply"), line);
  AddBenchFlags(app->get_subcommand("bench"), line);
  AddUpload(app->get_subcommand("upload"), &line->matrix);
  AddDownload(app->get_subcommand("download"), &line->matrix);
  AddToken(app->get_subcommand("token"), &line->token);
  app->get_subcommand("delete")
      ->add_option("ID", line->matrix.ids, "Of `gemmctl matrices`")
      ->required();
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
  if (ParsedCommand(app) == "completion") {
    line.text = BashCompletion(app);
    return line;
  }
  if (line.command == Command::kPrint) {
    return absl::InvalidArgumentError(
        "a command is wanted: multiply, bench, info, upload, ... (see gemmctl "
        "--help)");
  }
  if (line.json) {
    if (line.bench.format == BenchFormat::kCsv) {
      return absl::InvalidArgumentError(
          "--csv and --json are both given; give one of them (see gemmctl "
          "bench --help)");
    }
    line.bench.format = BenchFormat::kJson;
  }
  return line;
}

}  // namespace gemmd::gemmctl
