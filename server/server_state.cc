#include "server/server_state.h"

namespace gemmd {

bool ServerState::Serve() {
  MutexLock lock(&mu_);
  if (phase_ != Phase::kStarting) return false;
  phase_ = Phase::kServing;
  return true;
}

void ServerState::Drain(const absl::Status& fault) {
  MutexLock lock(&mu_);
  fault_.Update(fault);
  phase_ = Phase::kDraining;
  changed_.SignalAll();
}

void ServerState::WaitForDrain() {
  MutexLock lock(&mu_);
  while (phase_ != Phase::kDraining) changed_.Wait(&mu_);
}

void ServerState::WaitForFault(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  while (fault_.ok() && MonotonicClock::now() < deadline) {
    changed_.WaitUntil(&mu_, deadline);
  }
}

absl::Status ServerState::fault() const {
  MutexLock lock(&mu_);
  return fault_;
}

std::string ServerState::NotReadyReason() const {
  MutexLock lock(&mu_);
  switch (phase_) {
    case Phase::kStarting:
      return "starting: devices are warming up";
    case Phase::kServing:
      return "";
    case Phase::kDraining:
      break;
  }
  if (fault_.ok()) return "draining: the server was asked to stop";
  return absl::IsResourceExhausted(fault_)
             ? "draining: the gRPC port takes no more connections"
             : "draining: a device has failed";
}

}  // namespace gemmd
