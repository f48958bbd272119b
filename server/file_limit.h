// How many files and connections the process may have open.

#pragma once

namespace gemmd {

// Takes all that the system grants: the soft limit becomes the hard one
// (`ulimit -Hn`). Each connection is a file descriptor, and shells and service
// managers set the soft limit to 1024 for the sake of programs with select().
void RaiseFileLimit();

}  // namespace gemmd
