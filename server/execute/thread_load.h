// What a device may know of the thread that calls it.

#pragma once

namespace gemmd {

// Whether the calling thread has more to do that waits for it: then a device
// should not compute on it what a thread of its own can. Said by whoever runs
// the thread (rpc/completion_loop); false where nobody does.
bool ThreadHasMore();
void SetThreadHasMore(bool has_more);

}  // namespace gemmd
