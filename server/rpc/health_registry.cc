#include "server/rpc/health_registry.h"

namespace gemmd {

void HealthRegistry::SetServing(bool serving) {
  MutexLock lock(&mu_);
  Change(&serving_, serving);
}

void HealthRegistry::SetLive(bool live) {
  MutexLock lock(&mu_);
  Change(&live_, live);
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
  bool healthy;
  if (service.empty() || service == "gemmd.v1.GemmService" ||
      service == "readiness") {
    healthy = serving_;
  } else if (service == "liveness") {
    healthy = live_;
  } else {
    return Health::kServiceUnknown;
  }
  return healthy ? Health::kServing : Health::kNotServing;
}

void HealthRegistry::Change(bool* state, bool value) {
  *state = value;
  for (auto& [watcher, watched] : watchers_) {
    const Health health = GetLocked(watched.service);
    if (health == watched.told) continue;
    watched.told = health;
    watcher->OnHealth(health);
  }
}

}  // namespace gemmd
