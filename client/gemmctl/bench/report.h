// What was measured, for people and programs.

#pragma once

#include <string>

#include "client/gemmctl/bench/measurement.h"
#include "client/gemmctl/command_line.h"

namespace gemmd::gemmctl {

// One step of a bench: a concurrency or a rate.
struct BenchStep {
  double pace = 1;  // products in flight, or products a second
  int connections = 1;
  int windows = 1;
  bool stable = true;  // or stability was not asked for
  Measurement measured;
};

// Text: a table for one step, a line each for several. CSV: a header, then a
// line each. JSON: an object a line. `first` tells whether a header is due.
std::string FormatStep(const CommandLine& line, const BenchStep& step,
                       bool first);

}  // namespace gemmd::gemmctl
