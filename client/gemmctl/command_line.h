// What gemmctl is asked to do.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/client.h"

namespace gemmd::gemmctl {

enum class Command { kPrint, kMultiply, kBench, kInfo, kKernels, kHealth };

// `gemmctl multiply`.
struct MultiplyOptions {
  std::string a;  // files
  std::string b;
  std::string c;  // empty: none
  std::string output;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;
};

// `gemmctl bench`: a closed loop.
struct BenchOptions {
  int64_t m = 1024;
  int64_t n = 1024;
  int64_t k = 1024;
  bool transpose_a = false;
  bool transpose_b = false;
  int concurrency = 1;                         // calls in flight
  absl::Duration duration = absl::Seconds(5);  // unless `count` is given
  int64_t count = 0;                           // calls; 0: by duration
  absl::Duration warmup = absl::Seconds(1);
};

struct CommandLine {
  Command command = Command::kPrint;
  std::string text;  // for kPrint: help or version

  ClientOptions client;  // --server, --timeout, --connections, --retries
  std::string kernel;
  SgemmCall::Precision precision = SgemmCall::Precision::kFp32;
  bool json = false;

  MultiplyOptions multiply;
  BenchOptions bench;
  std::string health_service;
};

// INVALID_ARGUMENT with one line that says what was wrong and where help is.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// "fp32", "fp32_emulated", "tf32".
std::string PrecisionName(SgemmCall::Precision precision);

}  // namespace gemmd::gemmctl
