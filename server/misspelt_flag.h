// Variables of the environment that were meant for a flag.

#pragma once

#include "absl/strings/string_view.h"
#include "server/option_flags.h"

namespace gemmd {

// The flag whose variable this all but is, with up to two letters missing,
// added or wrong: GEMMD_AUTH_TOKEN_FIL would otherwise be read by nobody, and
// its server be open to everybody. Null where it is a flag's, or like none:
// other programs have variables that begin with GEMMD_.
const OptionFlag* MisspeltFlag(absl::string_view variable);

}  // namespace gemmd
