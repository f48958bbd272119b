// How much of the devices the matrices take, and on whose account.

#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/execute/resident_memory.h"
#include "server/mutex.h"

namespace gemmd {

// What is missing for an allocation.
struct BudgetLack {
  enum class Of { kNothing, kDevice, kClient };
  Of of = Of::kNothing;
  size_t bytes = 0;   // that somebody must give back first
  bool ever = true;   // false: it could not even fit alone
  size_t limit = 0;   // of the device or the client
  size_t in_use = 0;  // of it
};

// What bytes are taken for.
enum class StoreUse {
  kNumbers,  // a matrix
  kForm,     // what a kernel made of one
};

// Counts bytes by device and by client. Outlives the memory it counted:
// matrices that are deleted and still used count until their last user lets go.
//
// Thread-safe; calls nobody.
class StoreBudget {
 public:
  StoreBudget(std::vector<size_t> device_bytes, size_t client_bytes);

  // Takes `bytes` or nothing. A null client: on nobody's account.
  BudgetLack Take(const std::string* client, int device, size_t bytes,
                  StoreUse use) ABSL_LOCKS_EXCLUDED(mu_);
  void Give(const std::string* client, int device, size_t bytes, StoreUse use)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The device with the most bytes left; the lowest of equals.
  int Emptiest() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t used() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t used_by_forms() const ABSL_LOCKS_EXCLUDED(mu_);  // of it
  size_t capacity() const { return capacity_; }
  size_t client_bytes() const { return client_bytes_; }
  // Clients with something on their account.
  size_t clients() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::vector<size_t> device_bytes_;
  const size_t capacity_;
  const size_t client_bytes_;
  mutable Mutex mu_;
  std::vector<size_t> used_ ABSL_GUARDED_BY(mu_);
  size_t used_by_forms_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, size_t> used_by_client_ ABSL_GUARDED_BY(mu_);
};

// `memory` that gives its bytes back to `budget`, from which they were taken,
// when it goes.
std::unique_ptr<ResidentMemory> MakeCounted(
    std::unique_ptr<ResidentMemory> memory, std::shared_ptr<StoreBudget> budget,
    const std::string* client, size_t bytes, StoreUse use);

}  // namespace gemmd
