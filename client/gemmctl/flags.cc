#include "client/gemmctl/flags.h"

#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gemmd::gemmctl {
namespace {

const std::map<std::string, SgemmCall::Precision>& Precisions() {
  static const auto& names = *new std::map<std::string, SgemmCall::Precision>{
      {"fp32", SgemmCall::Precision::kFp32},
      {"fp32_emulated", SgemmCall::Precision::kFp32Emulated},
      {"tf32", SgemmCall::Precision::kTf32},
  };
  return names;
}

absl::StatusOr<absl::Duration> ReadDuration(const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = absl::ZeroDuration();
  }
  if (duration > absl::ZeroDuration()) return duration;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no time above 0 (5, 5s, 200ms, 1.5m)"));
}

// One of TLS's; TLS is on when one is given.
void AddTlsFlag(CLI::App* app, const std::string& flag,
                const std::string& environment, std::string TlsOptions::*member,
                ClientOptions* to, const std::string& description) {
  app->add_option_function<std::string>(
         flag,
         [to, member](const std::string& value) {
           if (value.empty()) return;
           if (!to->tls.has_value()) to->tls.emplace();
           *to->tls.*member = value;
         },
         description)
      ->envname(environment)
      ->type_name(member == &TlsOptions::server_name ? "NAME" : "FILE");
}

}  // namespace

std::string PrecisionName(SgemmCall::Precision precision) {
  for (const auto& [name, value] : Precisions()) {
    if (value == precision) return name;
  }
  return "unknown";
}

void AddDuration(CLI::App* app, const std::string& flag, absl::Duration* to,
                 const std::string& description) {
  app->add_option_function<std::string>(
         flag,
         [flag, to](const std::string& text) {
           *to = ValueOrThrow(flag, ReadDuration(text));
         },
         description)
      ->type_name("TIME")
      ->default_str(absl::FormatDuration(*to));
}

void AddAccessFlags(CLI::App* app, ClientOptions* to) {
  app->add_flag_function(
         "--tls",
         [to](int64_t on) {
           if (on > 0 && !to->tls.has_value()) to->tls.emplace();
         },
         "TLS, with the roots that the system trusts")
      ->envname("GEMMD_TLS");
  AddTlsFlag(app, "--tls-ca", "GEMMD_TLS_CA", &TlsOptions::root_certificates,
             to, "TLS, with the server's root certificates (PEM)");
  // Not GEMMD_TLS_CERT and GEMMD_TLS_KEY, which are the server's.
  AddTlsFlag(app, "--tls-cert", "GEMMD_CLIENT_TLS_CERT",
             &TlsOptions::certificate, to,
             "Your certificate (PEM), for a server that asks for one");
  AddTlsFlag(app, "--tls-key", "GEMMD_CLIENT_TLS_KEY", &TlsOptions::key, to,
             "Its private key (PEM)");
  AddTlsFlag(app, "--tls-server-name", "GEMMD_TLS_SERVER_NAME",
             &TlsOptions::server_name, to,
             "Whom the server's certificate names, if not the host");
  app->add_option("--token-file", to->token_file,
                  "A file that holds your token (`gemmctl token` makes one)")
      ->envname("GEMMD_TOKEN_FILE")
      ->type_name("FILE");
  app->add_flag("--allow-plaintext-token", to->allow_plaintext_token,
                "Send it to another host without TLS, for all to read");
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

}  // namespace gemmd::gemmctl
