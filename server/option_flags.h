// The server's flags as a table: name, meaning, default, and how a value is
// read. What every source of options (flag, environment, file) shares.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/options.h"

namespace gemmd {

struct OptionFlag {
  std::string name;          // "max-queue-delay": flag and key of the file
  std::string value_name;    // "DURATION"; empty for a switch
  std::string help;          // one line
  std::string default_text;  // as one would write it

  // Reads a value into its field. INVALID_ARGUMENT: the value and what is
  // wanted; the caller adds where it stood.
  std::function<absl::Status(absl::string_view value, ServerOptions* options)>
      set;

  bool list = false;  // several values, joined by commas, may be given

  // "GEMMD_MAX_QUEUE_DELAY"
  std::string environment_name() const;
};

// All of them, in the order of --help.
const std::vector<OptionFlag>& OptionFlags();

// The one of that name; null if there is none.
const OptionFlag* FindOptionFlag(absl::string_view name);

}  // namespace gemmd
