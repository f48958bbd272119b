// How many requests and bytes the process holds at once, whatever becomes of
// them: the budget that bounds memory.

#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "server/mutex.h"
#include "server/schedule/drain_rate.h"

namespace gemmd {

struct AdmissionOptions {
  // Held at once, answers being sent too. Twice --queue-max-requests.
  int max_requests = 8192;
  // Staged at once. --queue-max-bytes
  size_t max_bytes = size_t{4} << 30;
};

// Thread-safe. Outlives its tickets.
class Admission {
 public:
  // A share of the budget, given back on destruction. Move-only.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

   private:
    friend class Admission;
    Ticket(Admission* owner, size_t bytes) : owner_(owner), bytes_(bytes) {}
    Admission* owner_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit Admission(const AdmissionOptions& options);

  // RESOURCE_EXHAUSTED with QuotaFailure (naming the flag) and RetryInfo when
  // the budget is taken now; OUT_OF_RANGE when `bytes` is over the whole
  // budget.
  absl::StatusOr<Ticket> Admit(size_t bytes);

  int requests() const;
  size_t bytes() const;

 private:
  void Return(size_t bytes);

  const AdmissionOptions options_;
  mutable Mutex mu_;
  int requests_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  DrainRate drain_rate_ ABSL_GUARDED_BY(mu_);  // in bytes
};

}  // namespace gemmd
