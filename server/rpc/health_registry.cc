#include "server/rpc/health_registry.h"

namespace gemmd {

void HealthRegistry::SetServing(bool serving) {
  MutexLock lock(&mu_);
  serving_ = serving;
  for (auto& [watcher, watched] : watchers_) {
    const Health health = GetLocked(watched.service);
    if (health == watched.told) continue;
    watched.told = health;
    watcher->OnHealth(health);
  }
}

Health HealthRegistry::Get(absl::string_view service) const {
  MutexLock lock(&mu_);
  return GetLocked(service);
}

void HealthRegistry::Watch(const std::string& service, HealthWatcher* watcher) {
  MutexLock lock(&mu_);
  if (ended_) {
    watcher->OnEnd();
    return;
  }
  const Health health = GetLocked(service);
  watchers_[watcher] = {service, health};
  watcher->OnHealth(health);
}

void HealthRegistry::Unwatch(HealthWatcher* watcher) {
  MutexLock lock(&mu_);
  watchers_.erase(watcher);
}

void HealthRegistry::EndAll() {
  MutexLock lock(&mu_);
  ended_ = true;
  for (const auto& [watcher, watched] : watchers_) watcher->OnEnd();
  watchers_.clear();
}

Health HealthRegistry::GetLocked(absl::string_view service) const {
  if (service == "liveness") return Health::kServing;
  if (service.empty() || service == "gemmd.v1.GemmService" ||
      service == "readiness") {
    return serving_ ? Health::kServing : Health::kNotServing;
  }
  return Health::kServiceUnknown;
}

}  // namespace gemmd
