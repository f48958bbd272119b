// What the server says of its own health, and who wants to hear of changes.

#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "server/mutex.h"

namespace gemmd {

enum class Health { kServing, kNotServing, kServiceUnknown };

// Told of the health of one service. Both methods are called with the
// registry's lock held: they must not block nor call the registry.
class HealthWatcher {
 public:
  virtual void OnHealth(Health health) = 0;
  virtual void OnEnd() = 0;  // nothing more will come

 protected:
  ~HealthWatcher() = default;
};

// The services "" (the server), "gemmd.v1.GemmService" and "readiness" are one;
// "liveness" is always serving: a draining server is live, and not ready.
//
// Thread-safe.
class HealthRegistry {
 public:
  void SetServing(bool serving);

  Health Get(absl::string_view service) const;

  // Tells `watcher` the health of `service` now and at each change, until
  // Unwatch; that of a service that is not known is kServiceUnknown.
  void Watch(const std::string& service, HealthWatcher* watcher);

  // After this the watcher is not called.
  void Unwatch(HealthWatcher* watcher);

  // Ends all watchers, and those to come at once.
  void EndAll();

 private:
  Health GetLocked(absl::string_view service) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Each with its service and what it was told last.
  struct Watched {
    std::string service;
    Health told;
  };
  std::map<HealthWatcher*, Watched> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
