// Whether the server starts, serves or ends, and why it ends.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"

namespace gemmd {

//   starting --Serve--> serving --Drain--> draining
//       \----------------Drain--------------/
//
// Thread-safe.
class ServerState {
 public:
  // False: it drains already, a device having failed under the first requests.
  bool Serve();

  // `fault`: why, if nobody asked for it; the first is kept.
  void Drain(const absl::Status& fault);

  // Blocks until the server drains.
  void WaitForDrain();

  // Blocks until `deadline`, or a fault.
  void WaitForFault(MonotonicTime deadline);

  // Why it drains; OK: it was asked to, or does not.
  absl::Status fault() const;

  // For /readyz; empty: it is ready.
  std::string NotReadyReason() const;

 private:
  enum class Phase { kStarting, kServing, kDraining };

  mutable Mutex mu_;
  CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kStarting;
  absl::Status fault_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
