#include "server/store/store_budget.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace gemmd {
namespace {

class CountedMemory : public ResidentMemory {
 public:
  CountedMemory(std::unique_ptr<ResidentMemory> memory,
                std::shared_ptr<StoreBudget> budget, const std::string* client,
                size_t bytes, StoreUse use)
      : memory_(std::move(memory)),
        budget_(std::move(budget)),
        client_(client == nullptr ? std::nullopt : std::make_optional(*client)),
        bytes_(bytes),
        use_(use) {}
  ~CountedMemory() override {
    const int device = memory_->device();
    memory_.reset();  // first: what the budget has, the device has too
    budget_->Give(client_ ? &*client_ : nullptr, device, bytes_, use_);
  }

  std::byte* data() const override { return memory_->data(); }
  size_t size() const override { return memory_->size(); }
  int device() const override { return memory_->device(); }

 private:
  std::unique_ptr<ResidentMemory> memory_;
  const std::shared_ptr<StoreBudget> budget_;
  const std::optional<std::string> client_;
  const size_t bytes_;
  const StoreUse use_;
};

}  // namespace

StoreBudget::StoreBudget(std::vector<size_t> device_bytes, size_t client_bytes)
    : device_bytes_(std::move(device_bytes)),
      capacity_(std::accumulate(device_bytes_.begin(), device_bytes_.end(),
                                size_t{0})),
      client_bytes_(client_bytes == 0 ? capacity_ / 2 : client_bytes),
      used_(device_bytes_.size()) {}

BudgetLack StoreBudget::Take(const std::string* client, int device,
                             size_t bytes, StoreUse use) {
  using Of = BudgetLack::Of;
  MutexLock lock(&mu_);
  const auto lack = [bytes](Of of, size_t in_use, size_t limit) {
    if (bytes > limit) return BudgetLack{of, 0, false, limit, in_use};
    if (bytes <= limit - in_use) return BudgetLack{};
    return BudgetLack{of, bytes - (limit - in_use), true, limit, in_use};
  };
  size_t client_use = 0;
  if (client != nullptr) {
    const auto account = used_by_client_.find(*client);
    if (account != used_by_client_.end()) client_use = account->second;
  }
  const BudgetLack of_device =
      lack(Of::kDevice, used_[device], device_bytes_[device]);
  const BudgetLack of_client =
      client == nullptr ? BudgetLack{}
                        : lack(Of::kClient, client_use, client_bytes_);
  if (!of_device.ever) return of_device;
  if (of_client.of != Of::kNothing) return of_client;
  if (of_device.of != Of::kNothing) return of_device;
  used_[device] += bytes;
  if (use == StoreUse::kForm) used_by_forms_ += bytes;
  if (client != nullptr) used_by_client_[*client] += bytes;
  return {};
}

void StoreBudget::Give(const std::string* client, int device, size_t bytes,
                       StoreUse use) {
  MutexLock lock(&mu_);
  used_[device] -= bytes;
  if (use == StoreUse::kForm) used_by_forms_ -= bytes;
  if (client == nullptr) return;
  const auto account = used_by_client_.find(*client);
  if (account == used_by_client_.end()) return;
  account->second -= bytes;
  if (account->second == 0) used_by_client_.erase(account);
}

int StoreBudget::Emptiest() const {
  MutexLock lock(&mu_);
  size_t best = 0;
  for (size_t i = 1; i < used_.size(); ++i) {
    if (device_bytes_[i] - used_[i] > device_bytes_[best] - used_[best]) {
      best = i;
    }
  }
  return static_cast<int>(best);
}

size_t StoreBudget::used() const {
  MutexLock lock(&mu_);
  return std::accumulate(used_.begin(), used_.end(), size_t{0});
}

size_t StoreBudget::used_by_forms() const {
  MutexLock lock(&mu_);
  return used_by_forms_;
}

size_t StoreBudget::clients() const {
  MutexLock lock(&mu_);
  return used_by_client_.size();
}

std::unique_ptr<ResidentMemory> MakeCounted(
    std::unique_ptr<ResidentMemory> memory, std::shared_ptr<StoreBudget> budget,
    const std::string* client, size_t bytes, StoreUse use) {
  return std::make_unique<CountedMemory>(std::move(memory), std::move(budget),
                                         client, bytes, use);
}

}  // namespace gemmd
