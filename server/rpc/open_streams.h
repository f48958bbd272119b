// The calls that would go on for as long as their clients like.

#pragma once

#include <set>

#include "server/mutex.h"

namespace gemmd {

// Told that the server drains: it should take nothing new and end when what
// runs has ended. Called once at most, with the registry's lock held: it must
// not block nor call the registry.
class OpenStream {
 public:
  virtual void Drain() = 0;

 protected:
  ~OpenStream() = default;
};

// Thread-safe.
class OpenStreams {
 public:
  // Tells `stream` of the drain until Remove; at once if it is there already.
  void Add(OpenStream* stream) {
    MutexLock lock(&mu_);
    if (draining_) {
      stream->Drain();
    } else {
      streams_.insert(stream);
    }
  }

  // After this the stream is not called.
  void Remove(OpenStream* stream) {
    MutexLock lock(&mu_);
    streams_.erase(stream);
  }

  // Tells all of them, and those to come.
  void DrainAll() {
    MutexLock lock(&mu_);
    draining_ = true;
    for (OpenStream* stream : streams_) stream->Drain();
    streams_.clear();
  }

 private:
  Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::set<OpenStream*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
