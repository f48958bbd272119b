// Flags that several commands have.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/gemmctl/command_line.h"

namespace gemmd::gemmctl {

// A time above 0: 5, 5s, 200ms, 1.5m.
void AddDuration(CLI::App* app, const std::string& flag, absl::Duration* to,
                 const std::string& description);

// --transpose-a, --transpose-b, --kernel, --precision.
void AddProductFlags(CLI::App* app, CommandLine* line, bool* transpose_a,
                     bool* transpose_b);

// Every command has these: --tls and its files, --token-file.
void AddAccessFlags(CLI::App* app, ClientOptions* to);

// `bench` has these.
void AddBenchFlags(CLI::App* app, CommandLine* line);

// The value, or CLI11's error with the flag's name.
template <typename T>
T ValueOrThrow(const std::string& flag, absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  throw CLI::ValidationError(flag + ": " +
                             std::string(value.status().message()));
}

}  // namespace gemmd::gemmctl
