// How the process's allocator is set for messages of megabytes.

#pragma once

namespace gemmd {

// Tells glibc's malloc to keep what it has: one arena, no mmap below 32 MiB, no
// trimming below 1 GiB, 16 MiB at a time from the kernel. Without it the pages
// of every large message are given back and faulted in again, which costs a
// fifth of the throughput of 64 MiB messages and makes it depend on the heap's
// history (README.md). Call first in main(). Does nothing with another libc,
// nor where the program is linked with TCMalloc (gemmd::malloc), which keeps
// what it has and has no arenas to contend for. Either way a process stays as
// large as its largest burst of messages made it.
void ConfigureMalloc();

}  // namespace gemmd
