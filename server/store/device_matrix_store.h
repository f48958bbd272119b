// The store itself: joins names, room and uploads, and talks to the devices.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/mutex.h"
#include "server/store/incoming_matrix.h"
#include "server/store/matrix_book.h"
#include "server/store/matrix_store.h"
#include "server/store/store_budget.h"

namespace gemmd {

// See MatrixStore. What is forgotten under mu_ is let go of after it, since the
// end of a matrix gives memory back to a device.
class DeviceMatrixStore : public MatrixStore {
 public:
  using Copied = absl::AnyInvocable<void(absl::Status) &&>;

  DeviceMatrixStore(const MatrixStoreOptions& options, Backend& backend,
                    MatrixStoreObserver* observer);
  // Waits for the copies under way.
  ~DeviceMatrixStore() override;

  absl::StatusOr<std::unique_ptr<MatrixUpload>> BeginUpload(
      const UploadSpec& announced) override;
  absl::StatusOr<std::shared_ptr<StoredMatrix>> Find(
      absl::string_view client, absl::string_view id) override;
  absl::StatusOr<std::unique_ptr<PendingOutput>> BeginOutput(
      absl::string_view client, absl::string_view id, int64_t rows,
      int64_t cols, std::optional<absl::Duration> ttl, int device) override;
  void CopyTo(std::shared_ptr<StoredMatrix> matrix, int to,
              Copied done) override;
  std::shared_ptr<OperandForm> KeepForm(
      absl::string_view client,
      const std::shared_ptr<const StoredMatrix>& matrix, int device,
      const PreparedSgemm& kernel, KDirection k) override;
  void Read(std::shared_ptr<const StoredMatrix> matrix, size_t offset,
            StagingBuffer to, Device::CopyDone done) override;
  std::vector<MatrixInfo> List(absl::string_view client) override;
  absl::Status Delete(absl::string_view client, absl::string_view id) override;
  void RemoveExpired(MonotonicTime now) override;
  bool stuck() const override;
  size_t used_bytes() const override { return budget_->used(); }
  size_t form_bytes() const override { return budget_->used_by_forms(); }
  size_t capacity_bytes() const override { return budget_->capacity(); }
  int64_t matrices() const override;

  // Of an upload's stream: begins the copy of a chunk.
  void CopyIn(std::shared_ptr<IncomingMatrix> matrix, size_t offset,
              StagingBuffer chunk, Copied copied);
  void AbandonStream(const IncomingMatrix& matrix);
  // A stream has ended with its rows on the device; `last` of all.
  absl::StatusOr<MatrixUpload::Result> StreamArrived(
      const std::shared_ptr<IncomingMatrix>& matrix, bool last);
  // Gives an upload up that cannot be completed.
  void Drop(const std::shared_ptr<IncomingMatrix>& matrix);

  // Of a pending output.
  void Publish(const std::string& client, const std::string& id,
               std::shared_ptr<StoredMatrix> matrix,
               std::optional<MonotonicDuration> ttl);

 private:
  using Removal = MatrixStoreObserver::Removal;
  using Key = std::pair<std::string, std::string>;  // client, id
  using Incoming = std::map<Key, std::shared_ptr<IncomingMatrix>>;

  Device& device(int index) const { return *backend_.devices()[index]; }
  static std::string MintId();
  absl::StatusOr<std::optional<MonotonicDuration>> CheckTtl(
      std::optional<absl::Duration> ttl) const;

  // The upload's stream where the id or the digest is known; null: neither.
  absl::StatusOr<std::unique_ptr<MatrixUpload>> Join(const UploadSpec& spec,
                                                     MonotonicDuration ttl)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<MatrixUpload> Begin(const UploadSpec& spec,
                                      MonotonicDuration ttl,
                                      std::unique_ptr<ResidentMemory> memory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Memory, at the cost of others where needed. A null client: on nobody's
  // account.
  absl::StatusOr<std::unique_ptr<ResidentMemory>> Reserve(
      const std::string* client, int device, size_t bytes,
      StoreUse use = StoreUse::kNumbers) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it could give something back, for that use.
  bool Evict(const BudgetLack& lack, int device, const std::string* client,
             StoreUse use) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MakeRoomForAName() ABSL_LOCKS_EXCLUDED(mu_);

  void EndCopyTo(const std::shared_ptr<StoredMatrix>& matrix, int to,
                 std::unique_ptr<ResidentMemory> memory, absl::Status status);
  // What a client is told of a copy, and the observer of a fault.
  absl::Status CopyStatus(int device, const absl::Status& status);
  void Removed(Removal why, size_t times = 1);

  void WakeBy(MonotonicTime time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Sweep() ABSL_LOCKS_EXCLUDED(mu_);

  // A device's copies that have not ended; devices end them in order.
  struct UnderWay {
    int copies = 0;
    MonotonicTime since;  // the last ended, or the first began
    bool stuck = false;
  };
  void BeginCopy(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndCopy(int device) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsCopying() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those that have become stuck.
  std::vector<int> FindStuckDevices(MonotonicTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellOfStuckDevices(const std::vector<int>& devices);

  const MatrixStoreOptions options_;
  const MonotonicDuration abandon_after_;
  const MonotonicDuration device_timeout_;
  Backend& backend_;
  MatrixStoreObserver* const observer_;
  const std::shared_ptr<StoreBudget> budget_;  // synchronises itself

  mutable Mutex mu_;
  MatrixBook book_ ABSL_GUARDED_BY(mu_);
  // No id is both here and in the book.
  Incoming incoming_ ABSL_GUARDED_BY(mu_);
  // Who waits for a matrix to come to a device.
  std::map<std::pair<const StoredMatrix*, int>, std::vector<Copied>> copies_
      ABSL_GUARDED_BY(mu_);
  std::vector<UnderWay> under_way_ ABSL_GUARDED_BY(mu_);  // by device
  CondVar copied_;
  MonotonicTime next_sweep_ ABSL_GUARDED_BY(mu_) = kNever;
  MonotonicTime last_sweep_ ABSL_GUARDED_BY(mu_){};
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar wake_;

  std::thread sweeper_;  // last: it uses all of the above
};

}  // namespace gemmd
