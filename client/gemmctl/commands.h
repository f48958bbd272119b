// What gemmctl does, one function a command; each returns an ExitCode.
// Results go to stdout; progress, reports and errors to stderr.

#pragma once

#include "client/gemmctl/command_line.h"

namespace gemmd::gemmctl {

// Multiplies files. Reads and checks them all before it connects, and writes
// the product's file whole or not at all.
int RunMultiply(const CommandLine& line);

// Keeps products on their way, at one pace after another, and measures them.
int RunBench(const CommandLine& line);

int RunInfo(const CommandLine& line);
int RunKernels(const CommandLine& line);

// Matrices on the server, of the client id that ClientId() tells.
int RunUpload(const CommandLine& line);
int RunDownload(const CommandLine& line);
int RunMatrices(const CommandLine& line);
int RunDelete(const CommandLine& line);

// kOk when serving, kFailed when not.
int RunHealth(const CommandLine& line);

// Makes a secret file for a client and prints the server's line for it. Asks no
// server.
int RunToken(const CommandLine& line);

}  // namespace gemmd::gemmctl
