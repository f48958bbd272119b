// How many requests and bytes the process holds at once, whatever becomes of
// them: the budget that bounds memory.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/mutex.h"
#include "server/schedule/drain_rate.h"

namespace gemmd {

struct AdmissionOptions {
  // Held at once: waiting, running and being answered. --queue-max-requests
  int max_requests = 4096;
  // Of staging memory, by them. --queue-max-bytes
  size_t max_bytes = size_t{4} << 30;
};

// The only gate: what has passed it is bounded, so the queue behind it needs no
// limits of its own.
//
// A client may hold kShare times what nobody holds: alone four fifths of the
// budget, two clients four ninths each, and there is always room for one more.
// Whoever holds nothing may take whatever is free. So a client that never reads
// its answers, or asks without end, takes its share and no more. (Dynamic
// thresholds; Choudhury, Hahne, IEEE/ACM ToN 6(2), 1998,
// doi:10.1109/90.664262.)
//
// Thread-safe. Outlives its tickets.
class Admission {
 private:
  struct Client;

 public:
  // A part of the budget, given back on destruction. Move-only.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

   private:
    friend class Admission;
    Ticket(Admission* owner, Client* client, size_t bytes)
        : owner_(owner), client_(client), bytes_(bytes) {}
    Admission* owner_ = nullptr;
    Client* client_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit Admission(const AdmissionOptions& options);
  ~Admission();

  // RESOURCE_EXHAUSTED with QuotaFailure (naming the flag) and RetryInfo (from
  // the rate at which what is held goes away) when the budget, or the client's
  // share of it, is taken now; OUT_OF_RANGE when `bytes` is over the whole
  // budget.
  absl::StatusOr<Ticket> Admit(absl::string_view client, size_t bytes);

  int requests() const;
  size_t bytes() const;

  static constexpr size_t kShare = 4;

 private:
  absl::Status CheckRoom(const Client& client, size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Full(absl::string_view flag, absl::string_view message) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Return(Client* client, size_t bytes);

  const AdmissionOptions options_;
  mutable Mutex mu_;
  // Those that hold something.
  absl::flat_hash_map<std::string, std::unique_ptr<Client>> clients_
      ABSL_GUARDED_BY(mu_);
  size_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  DrainRate drain_rate_ ABSL_GUARDED_BY(mu_);  // in requests
};

}  // namespace gemmd
