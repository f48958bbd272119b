// What gemmctl is asked to do.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/gemmctl/bench/bench_options.h"
#include "gemmd/client.h"

namespace gemmd::gemmctl {

enum class Command {
  kPrint,
  kMultiply,
  kBench,
  kInfo,
  kKernels,
  kHealth,
  kUpload,
  kDownload,
  kMatrices,
  kDelete,
  kToken,
};

// `gemmctl multiply`. A matrix is a file or, as @ID, on the server.
struct MultiplyOptions {
  std::string a;
  std::string b;
  std::string c;  // empty: none
  std::string output;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;
};

// `gemmctl upload`, `download` and `delete`.
struct MatrixOptions {
  std::string file;                           // .npy
  std::vector<std::string> ids;               // one, but for `delete`
  absl::Duration ttl = absl::ZeroDuration();  // 0: the server's
};

// `gemmctl token`.
struct TokenOptions {
  std::string name;
  std::string roles;  // with commas between them
  std::string file;
};

struct CommandLine {
  Command command = Command::kPrint;
  std::string text;  // for kPrint: help or version

  ClientOptions client;  // --server, --timeout, --tls-ca, ...
  std::string kernel;
  SgemmCall::Precision precision = SgemmCall::Precision::kFp32;
  bool json = false;

  MultiplyOptions multiply;
  MatrixOptions matrix;
  BenchOptions bench;
  TokenOptions token;
  std::string health_service;
};

// INVALID_ARGUMENT with one line that says what was wrong and where help is.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// "fp32", "fp32_emulated", "tf32".
std::string PrecisionName(SgemmCall::Precision precision);

}  // namespace gemmd::gemmctl
