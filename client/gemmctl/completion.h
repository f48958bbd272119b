// Completion of command lines by the shell.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gemmd::gemmctl {

// A script for bash that completes `app`'s commands and flags, and files
// elsewhere.
std::string BashCompletion(const CLI::App& app);

}  // namespace gemmd::gemmctl
