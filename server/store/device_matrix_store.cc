#include "server/store/device_matrix_store.h"

#include <openssl/rand.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/store/store_errors.h"

namespace gemmd {
namespace {

// A sweep looks at every name, so it is not done for each that expires.
constexpr auto kSweepInterval = std::chrono::milliseconds(250);

std::vector<size_t> DeviceBytes(const Backend& backend) {
  std::vector<size_t> bytes;
  for (const auto& device : backend.devices()) {
    bytes.push_back(device->resident_capacity());
  }
  return bytes;
}

class Output : public PendingOutput {
 public:
  Output(DeviceMatrixStore& store, absl::string_view client, std::string id,
         std::shared_ptr<StoredMatrix> matrix,
         std::optional<MonotonicDuration> ttl)
      : store_(store),
        client_(client),
        id_(std::move(id)),
        matrix_(std::move(matrix)),
        ttl_(ttl) {}
  const std::string& id() const override { return id_; }
  const std::shared_ptr<StoredMatrix>& matrix() const override {
    return matrix_;
  }
  void Commit() override { store_.Publish(client_, id_, matrix_, ttl_); }

 private:
  DeviceMatrixStore& store_;
  const std::string client_;
  const std::string id_;
  const std::shared_ptr<StoredMatrix> matrix_;
  const std::optional<MonotonicDuration> ttl_;
};

}  // namespace

std::unique_ptr<MatrixStore> MatrixStore::Create(
    const MatrixStoreOptions& options, Backend& backend,
    MatrixStoreObserver* observer) {
  return std::make_unique<DeviceMatrixStore>(options, backend, observer);
}

DeviceMatrixStore::DeviceMatrixStore(const MatrixStoreOptions& options,
                                     Backend& backend,
                                     MatrixStoreObserver* observer)
    : options_(options),
      abandon_after_(absl::ToChronoNanoseconds(options.abandon_after)),
      device_timeout_(absl::ToChronoNanoseconds(options.device_timeout)),
      backend_(backend),
      observer_(observer),
      budget_(std::make_shared<StoreBudget>(DeviceBytes(backend),
                                            options.client_bytes)),
      under_way_(backend.devices().size()),
      sweeper_([this] { Sweep(); }) {
  pthread_setname_np(sweeper_.native_handle(), "gemmd-store");
}

DeviceMatrixStore::~DeviceMatrixStore() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.Signal();
  }
  sweeper_.join();
  MutexLock lock(&mu_);
  while (IsCopying()) copied_.Wait(&mu_);
}

// 128 random bits: nobody meets another's by chance.
std::string DeviceMatrixStore::MintId() {
  char bytes[16];
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes), sizeof(bytes)) != 1) {
    std::fputs("gemmd: no random numbers\n", stderr);
    std::abort();
  }
  return absl::StrCat(
      "m-", absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes))));
}

absl::StatusOr<std::optional<MonotonicDuration>> DeviceMatrixStore::CheckTtl(
    std::optional<absl::Duration> ttl) const {
  if (!ttl) return std::nullopt;
  if (*ttl <= absl::ZeroDuration()) {
    return InvalidFieldError(
        "ttl", absl::StrCat("the ttl is ", absl::FormatDuration(*ttl),
                            "; more than nothing is wanted"));
  }
  if (*ttl > options_.max_ttl) {
    return LimitError(
        "--matrix-ttl", absl::ToInt64Seconds(options_.max_ttl),
        absl::StrCat("the ttl is ", absl::FormatDuration(*ttl), "; at most ",
                     absl::FormatDuration(options_.max_ttl), " can be"));
  }
  return absl::ToChronoNanoseconds(*ttl);
}

absl::StatusOr<std::shared_ptr<StoredMatrix>> DeviceMatrixStore::Find(
    absl::string_view client, absl::string_view id) {
  MutexLock lock(&mu_);
  auto matrix = book_.Find(client, id, MonotonicClock::now());
  if (matrix != nullptr) return matrix;
  if (incoming_.contains({std::string(client), std::string(id)})) {
    return MatrixIncompleteError(id);
  }
  return MatrixNotFoundError(id);
}

absl::StatusOr<std::unique_ptr<PendingOutput>> DeviceMatrixStore::BeginOutput(
    absl::string_view client, absl::string_view id, int64_t rows, int64_t cols,
    std::optional<absl::Duration> ttl, int device) {
  const auto lives = CheckTtl(ttl);
  if (!lives.ok()) return lives.status();
  if (absl::Status status = MakeRoomForAName(); !status.ok()) return status;
  const std::string owner(client);
  {
    MutexLock lock(&mu_);
    if (incoming_.contains({owner, std::string(id)})) {
      return MatrixIncompleteError(id);
    }
    const StoredMatrix* const old = book_.Peek(client, id);
    if (old != nullptr && (old->rows() != rows || old->cols() != cols)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the output \"", id, "\" is a matrix of ", old->rows(), " x ",
          old->cols(), "; the product has ", rows, " x ", cols));
    }
  }
  auto memory = Reserve(&owner, device < 0 ? budget_->Emptiest() : device,
                        static_cast<size_t>(rows) * cols * 4);
  if (!memory.ok()) return memory.status();
  return std::make_unique<Output>(
      *this, client, id.empty() ? MintId() : std::string(id),
      std::make_shared<StoredMatrix>(rows, cols, *std::move(memory)), *lives);
}

void DeviceMatrixStore::Publish(const std::string& client,
                                const std::string& id,
                                std::shared_ptr<StoredMatrix> matrix,
                                std::optional<MonotonicDuration> ttl) {
  MatrixBook::Replaced replaced;
  std::shared_ptr<IncomingMatrix> incoming;
  {
    MutexLock lock(&mu_);
    const auto found = incoming_.find({client, id});
    if (found != incoming_.end()) {  // begun meanwhile; the later one stays
      incoming = std::move(found->second);
      incoming->Drop();
      incoming_.erase(found);
    }
    const MonotonicDuration lives = ttl.value_or(
        book_.TtlOf(client, id, absl::ToChronoNanoseconds(options_.ttl)));
    replaced = book_.Put(client, id, std::move(matrix), /*digest=*/"", lives,
                         MonotonicClock::now());
    WakeBy(book_.next_expiry());
  }
  if (replaced.any || incoming != nullptr) Removed(Removal::kReplaced);
}

std::vector<MatrixInfo> DeviceMatrixStore::List(absl::string_view client) {
  std::vector<MatrixInfo> infos;
  MutexLock lock(&mu_);
  const MonotonicTime now = MonotonicClock::now();
  for (const MatrixBook::Row& row : book_.List(client)) {
    infos.push_back(
        {row.id, row.matrix->rows(), row.matrix->cols(), true,
         row.matrix->device_bytes(), row.matrix->devices(),
         absl::FromChrono(std::max(MonotonicDuration(0), row.expires - now)),
         row.uses});
  }
  for (auto it = incoming_.lower_bound({std::string(client), ""});
       it != incoming_.end() && it->first.first == client; ++it) {
    const IncomingMatrix& matrix = *it->second;
    const MonotonicTime ends =
        matrix.idle_since().value_or(now) + abandon_after_;
    infos.push_back(
        {matrix.id(),
         matrix.rows(),
         matrix.cols(),
         false,
         matrix.memory().size(),
         {matrix.memory().device()},
         absl::FromChrono(std::max(MonotonicDuration(0), ends - now)),
         matrix.streams()});
  }
  std::sort(infos.begin(), infos.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return infos;
}

absl::Status DeviceMatrixStore::Delete(absl::string_view client,
                                       absl::string_view id) {
  MatrixBook::Replaced removed;
  std::shared_ptr<IncomingMatrix> incoming;
  {
    MutexLock lock(&mu_);
    removed = book_.Remove(client, id);
    const auto found = incoming_.find({std::string(client), std::string(id)});
    if (found != incoming_.end()) {
      incoming = std::move(found->second);
      incoming->Drop();
      incoming_.erase(found);
    }
  }
  if (!removed.any && incoming == nullptr) return MatrixNotFoundError(id);
  Removed(Removal::kDeleted);
  return absl::OkStatus();
}

int64_t DeviceMatrixStore::matrices() const {
  MutexLock lock(&mu_);
  return book_.names();
}

void DeviceMatrixStore::Removed(Removal why, size_t times) {
  if (observer_ == nullptr) return;
  for (; times > 0; --times) observer_->OnRemoved(why);
}

void DeviceMatrixStore::WakeBy(MonotonicTime time) {
  if (time >= next_sweep_) return;
  next_sweep_ = time;
  wake_.Signal();
}

void DeviceMatrixStore::Sweep() {
  while (true) {
    {
      MutexLock lock(&mu_);
      const MonotonicTime earliest = last_sweep_ + kSweepInterval;
      while (!stopping_ &&
             std::max(next_sweep_, earliest) > MonotonicClock::now()) {
        wake_.WaitUntil(&mu_, std::max(next_sweep_, earliest));
      }
      if (stopping_) return;
      last_sweep_ = MonotonicClock::now();
    }
    RemoveExpired(MonotonicClock::now());
  }
}

void DeviceMatrixStore::RemoveExpired(MonotonicTime now) {
  MatrixBook::Expired expired;
  std::vector<std::shared_ptr<IncomingMatrix>> abandoned;
  std::vector<int> stuck;
  {
    MutexLock lock(&mu_);
    next_sweep_ = kNever;
    stuck = FindStuckDevices(now);
    expired = book_.RemoveExpired(now);
    WakeBy(book_.next_expiry());
    for (auto it = incoming_.begin(); it != incoming_.end();) {
      const auto idle = it->second->idle_since();
      if (idle && *idle + abandon_after_ <= now) {
        it->second->Drop();
        abandoned.push_back(std::move(it->second));
        it = incoming_.erase(it);
        continue;
      }
      if (idle) WakeBy(*idle + abandon_after_);
      ++it;
    }
  }
  Removed(Removal::kExpired, expired.names);
  Removed(Removal::kAbandoned, abandoned.size());
  TellOfStuckDevices(stuck);
}

}  // namespace gemmd
