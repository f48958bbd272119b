// The store's room, and its talk with the devices: allocations and copies.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/execute/task_run.h"
#include "server/store/device_matrix_store.h"
#include "server/store/store_errors.h"

namespace gemmd {
namespace {

// Each costs the host a few hundred bytes, whatever it has on a device.
constexpr int64_t kMaxNames = int64_t{1} << 18;

}  // namespace

absl::StatusOr<std::unique_ptr<ResidentMemory>> DeviceMatrixStore::Reserve(
    const std::string* client, int device_index, size_t wanted_bytes,
    StoreUse use) {
  const size_t bytes = std::max<size_t>(wanted_bytes, 1);
  while (true) {
    BudgetLack lack = budget_->Take(client, device_index, bytes, use);
    if (lack.of == BudgetLack::Of::kNothing) {
      auto memory = device(device_index).AllocateResident(bytes);
      if (memory.ok()) {
        return MakeCounted(*std::move(memory), budget_, client, bytes, use);
      }
      budget_->Give(client, device_index, bytes, use);
      if (!absl::IsResourceExhausted(memory.status())) return memory.status();
      // There is enough, but not in one piece.
      const size_t limit = device(device_index).resident_capacity();
      lack = {BudgetLack::Of::kDevice, 1, true, limit, limit};
    }
    if (!lack.ever || !Evict(lack, device_index, client, use)) {
      return NoRoomError(bytes, lack);
    }
  }
}

bool DeviceMatrixStore::Evict(const BudgetLack& lack, int device_index,
                              const std::string* client, StoreUse use) {
  const std::string* const of =
      lack.of == BudgetLack::Of::kClient ? client : nullptr;
  MatrixBook::Evicted evicted;
  {
    MutexLock lock(&mu_);
    evicted = use == StoreUse::kForm
                  ? book_.EvictForms(lack.bytes, device_index, of)
                  : book_.Evict(lack.bytes, device_index, of);
  }
  Removed(Removal::kEvicted, evicted.matrices.size());
  return evicted.any();
}

std::shared_ptr<OperandForm> DeviceMatrixStore::KeepForm(
    absl::string_view client, const std::shared_ptr<const StoredMatrix>& matrix,
    int device_index, const PreparedSgemm& kernel, KDirection k) {
  {
    MutexLock lock(&mu_);  // else it could go while Evict counts it
    auto kept = matrix->form({&kernel, k, device_index});
    if (kept != nullptr) return kept;
  }
  const std::string owner(client);
  auto memory = Reserve(&owner, device_index,
                        kernel.PreparedBytes(matrix->rows(), matrix->cols(), k),
                        StoreUse::kForm);
  if (!memory.ok()) return nullptr;
  const auto made =
      std::make_shared<OperandForm>(kernel, k, *std::move(memory));
  MutexLock lock(&mu_);
  return matrix->KeepForm(made);  // another product may have been faster
}

absl::Status DeviceMatrixStore::MakeRoomForAName() {
  const int64_t names = matrices();
  if (names < kMaxNames) return absl::OkStatus();
  MatrixBook::Matrix oldest;
  {
    MutexLock lock(&mu_);
    oldest = book_.EvictOne();
  }
  if (oldest != nullptr) {
    Removed(Removal::kEvicted);
    return absl::OkStatus();
  }
  return TooManyNamesError(names);
}

void DeviceMatrixStore::BeginCopy(int device_index) {
  UnderWay& of = under_way_[device_index];
  if (++of.copies > 1) return;
  of.since = MonotonicClock::now();
  WakeBy(of.since + device_timeout_);
}

void DeviceMatrixStore::EndCopy(int device_index) {
  MutexLock lock(&mu_);
  UnderWay& of = under_way_[device_index];
  of.since = MonotonicClock::now();
  of.stuck = false;  // slow, then
  if (--of.copies == 0) copied_.SignalAll();
}

bool DeviceMatrixStore::IsCopying() const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const UnderWay& of) { return of.copies > 0; });
}

bool DeviceMatrixStore::stuck() const {
  MutexLock lock(&mu_);
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const UnderWay& of) { return of.stuck; });
}

std::vector<int> DeviceMatrixStore::FindStuckDevices(MonotonicTime now) {
  std::vector<int> found;
  for (size_t i = 0; i < under_way_.size(); ++i) {
    UnderWay& of = under_way_[i];
    if (of.copies == 0 || of.stuck) continue;
    of.stuck = of.since + device_timeout_ <= now;
    if (of.stuck) {
      found.push_back(static_cast<int>(i));
    } else {
      WakeBy(of.since + device_timeout_);
    }
  }
  return found;
}

void DeviceMatrixStore::TellOfStuckDevices(const std::vector<int>& devices) {
  if (observer_ == nullptr) return;
  for (const int stuck : devices) {
    observer_->OnDeviceFault(
        stuck, absl::InternalError(absl::StrCat(
                   "the device has ended no copy of a resident matrix for ",
                   absl::FormatDuration(options_.device_timeout),
                   " (--device-timeout)")));
  }
}

absl::Status DeviceMatrixStore::CopyStatus(int device_index,
                                           const absl::Status& status) {
  if (status.ok()) return status;
  if (observer_ != nullptr) observer_->OnDeviceFault(device_index, status);
  return DeviceFaultError(device_index);
}

// Copies are done in order, so one of a stream that was given up is done before
// those of the stream that carries its rows again: while it is under way, the
// matrix is incomplete, and `matrix` has its memory.
void DeviceMatrixStore::CopyIn(std::shared_ptr<IncomingMatrix> matrix,
                               size_t offset, StagingBuffer chunk,
                               Copied copied) {
  ResidentMemory& memory = matrix->memory();
  const int to = memory.device();
  {
    MutexLock lock(&mu_);
    BeginCopy(to);
  }
  device(to).CopyIn(
      memory, offset, std::move(chunk),
      [this, to, matrix = std::move(matrix), copied = std::move(copied)](
          const absl::Status& status, StagingBuffer buffer) mutable {
        buffer.Reset();
        if (!status.ok()) Drop(matrix);
        std::move(copied)(CopyStatus(to, status));
        matrix.reset();
        EndCopy(to);
      });
}

void DeviceMatrixStore::Read(std::shared_ptr<const StoredMatrix> matrix,
                             size_t offset, StagingBuffer to,
                             Device::CopyDone done) {
  const int home = matrix->home();
  {
    MutexLock lock(&mu_);
    BeginCopy(home);
  }
  const ResidentMemory& memory = *matrix->memory(home);
  device(home).CopyOut(
      memory, offset, std::move(to),
      [this, home, matrix = std::move(matrix), done = std::move(done)](
          const absl::Status& status, StagingBuffer buffer) mutable {
        matrix.reset();
        std::move(done)(CopyStatus(home, status), std::move(buffer));
        EndCopy(home);
      });
}

void DeviceMatrixStore::CopyTo(std::shared_ptr<StoredMatrix> matrix, int to,
                               Copied done) {
  Copied at_once;  // where it is there already
  {
    MutexLock lock(&mu_);
    if (matrix->memory(to) != nullptr) {
      at_once = std::move(done);
    } else {
      std::vector<Copied>& waiting = copies_[{matrix.get(), to}];
      waiting.push_back(std::move(done));
      if (waiting.size() > 1) return;  // it is on its way
      BeginCopy(to);
    }
  }
  if (at_once) {
    std::move(at_once)(absl::OkStatus());
    return;
  }
  auto memory = Reserve(/*client=*/nullptr, to, matrix->bytes());
  if (!memory.ok()) {
    EndCopyTo(matrix, to, nullptr, memory.status());
    return;
  }
  const ResidentMemory& from = *matrix->memory(matrix->home());
  ResidentMemory& into = **memory;
  device(to).CopyFrom(
      from, into, 0, into.size(),
      [this, to, matrix = std::move(matrix),
       memory = *std::move(memory)](const absl::Status& status) mutable {
        EndCopyTo(matrix, to, std::move(memory), CopyStatus(to, status));
      });
}

void DeviceMatrixStore::EndCopyTo(const std::shared_ptr<StoredMatrix>& matrix,
                                  int to,
                                  std::unique_ptr<ResidentMemory> memory,
                                  absl::Status status) {
  std::vector<Copied> waiting;
  {
    MutexLock lock(&mu_);
    if (status.ok()) matrix->AddCopy(std::move(memory));
    const auto found = copies_.find({matrix.get(), to});
    waiting = std::move(found->second);
    copies_.erase(found);
  }
  for (Copied& done : waiting) std::move(done)(status);
  EndCopy(to);
}

}  // namespace gemmd
