// The matrices that clients keep on the devices: names, budgets, lifetimes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/execute/backend.h"
#include "server/monotonic_time.h"
#include "server/store/stored_matrix.h"

namespace gemmd {

struct MatrixStoreOptions {
  // Since a matrix's last use, where the request says nothing. --matrix-ttl
  absl::Duration ttl = absl::Minutes(15);
  // The longest that a request may ask for.
  absl::Duration max_ttl = absl::Hours(24);
  // After this an upload that no stream carries any more is given up.
  absl::Duration abandon_after = absl::Seconds(30);
  // A device that has copies to do and ends none for so long is stuck.
  // --device-timeout
  absl::Duration device_timeout = absl::Seconds(60);
  // Of one client, over all devices; 0: half of all there is, which no flag
  // changes.
  size_t client_bytes = 0;
};

// What an upload stream announces; fields as gemmd.v1.UploadHeader has them,
// validated (id and digest well-formed, rows * cols * 4 does not overflow, the
// row range lies inside).
struct UploadSpec {
  std::string client;
  std::string id;  // empty: the store mints one
  int64_t rows = 0;
  int64_t cols = 0;
  std::optional<absl::Duration> ttl;
  std::string digest;  // 32 bytes, or empty
  int64_t first_row = 0;
  int64_t row_count = 0;  // already resolved: never "all the rest"
};

// One stream's part of a matrix on its way to a device. Destroyed before Finish
// was called, it leaves the matrix as if its rows had never been sent; when no
// stream carries the matrix any more and rows are missing, its memory is given
// back after a while (an abandoned upload).
//
// Thread-compatible: one stream's calls come one after another.
class MatrixUpload {
 public:
  virtual ~MatrixUpload() = default;

  virtual const std::string& id() const = 0;

  // These numbers are there already: no rows are wanted. The client holds the
  // matrix (found by the digest), which is known under id() as well; or a
  // stream of this one's rows came before, of a matrix with this digest, to
  // which more are still to come.
  virtual bool already_held() const = 0;

  // Bytes that this stream still owes.
  virtual uint64_t missing_bytes() const = 0;

  // The next bytes of the stream's rows: begins their copy to the device and
  // returns. `copied` is called once, on a thread of the device's, when the
  // chunk's memory is free again; the caller reads on then, which bounds what
  // is in flight. Where a digest was announced, hashes the chunk first: about
  // a millisecond a MiB, so not for a polling thread.
  //
  // An error means that `copied` is not called: INVALID_ARGUMENT when it is
  // more than missing_bytes(); NOT_FOUND when the matrix was deleted or
  // replaced meanwhile.
  virtual absl::Status Append(
      StagingBuffer chunk,
      absl::AnyInvocable<void(absl::Status) &&> copied) = 0;

  struct Result {
    std::string id;
    bool complete = false;  // every row of every stream is there
    bool already_held = false;
  };
  // After the last Append: answers once this stream's rows are on the device,
  // maybe at once. The upload may be destroyed before that. INVALID_ARGUMENT
  // when bytes are missing, or when this was the last stream and the whole does
  // not have the digest announced (then the matrix is dropped).
  virtual void Finish(
      absl::AnyInvocable<void(absl::StatusOr<Result>) &&> done) = 0;
};

// A matrix that a product is about to make. Destroyed before Commit, nothing
// has happened.
class PendingOutput {
 public:
  virtual ~PendingOutput() = default;
  virtual const std::string& id() const = 0;
  // To write to, on the device asked for.
  virtual const std::shared_ptr<StoredMatrix>& matrix() const = 0;
  // Publishes it under its id, in the place of what was there.
  virtual void Commit() = 0;
};

struct MatrixInfo {
  std::string id;
  int64_t rows = 0;
  int64_t cols = 0;
  bool complete = false;
  size_t device_bytes = 0;
  std::vector<int> devices;
  absl::Duration expires_in;
  int64_t uses = 0;
};

// Told what becomes of matrices. Called with no lock held; must not block.
class MatrixStoreObserver {
 public:
  virtual ~MatrixStoreObserver() = default;
  enum class Removal { kDeleted, kExpired, kEvicted, kReplaced, kAbandoned };
  virtual void OnRemoved(Removal why) = 0;
  // A copy failed, or does not end: the device cannot be trusted any more. As
  // BatchObserver::OnDeviceFault, for the log.
  virtual void OnDeviceFault(int device, const absl::Status& status) = 0;
};

// Ids are scoped to the client: nobody can see, use or guess another's.
//
// Room: what does not fit evicts what nobody uses, least recently used first,
// of any client: forms of matrices, then complete matrices; when that is not
// enough the caller gets RESOURCE_EXHAUSTED (QuotaFailure naming the flag,
// RetryInfo), or OUT_OF_RANGE when it could never fit. A client over
// client_bytes evicts only its own. Copies on further devices (CopyTo) are
// nobody's quota. A form evicts nothing but other forms.
//
// A ttl that is not positive is INVALID_ARGUMENT, one over max_ttl
// OUT_OF_RANGE.
//
// Time: a matrix expires `ttl` after its last use; uses are products, transfers
// and Find. A thread of the store's looks after that, four times a second at
// most.
//
// Thread-safe. No lock is held while a device is called or anybody told (I2).
class MatrixStore {
 public:
  // `backend` and `observer` outlive the store; observer may be null.
  static std::unique_ptr<MatrixStore> Create(const MatrixStoreOptions& options,
                                             Backend& backend,
                                             MatrixStoreObserver* observer);
  // Waits for the copies under way, on a stuck device too: see stuck().
  virtual ~MatrixStore() = default;

  // Several streams of one matrix announce the same rows, cols and digest, and
  // row ranges that do not overlap: else INVALID_ARGUMENT. ALREADY_EXISTS when
  // the id is another, complete matrix's.
  virtual absl::StatusOr<std::unique_ptr<MatrixUpload>> BeginUpload(
      const UploadSpec& spec) = 0;

  // The client's complete matrix of that id, kept alive while the pointer is
  // held. NOT_FOUND with ResourceInfo; FAILED_PRECONDITION while rows are
  // missing.
  virtual absl::StatusOr<std::shared_ptr<StoredMatrix>> Find(
      absl::string_view client, absl::string_view id) = 0;

  // Room for a product on `device`. An empty id: one is minted. Where the id
  // exists with another shape: FAILED_PRECONDITION saying which.
  virtual absl::StatusOr<std::unique_ptr<PendingOutput>> BeginOutput(
      absl::string_view client, absl::string_view id, int64_t rows,
      int64_t cols, std::optional<absl::Duration> ttl, int device) = 0;

  // Sees to it that `matrix` is on `device` (peer to peer where possible) and
  // calls `done` once; at once where it is there already.
  virtual void CopyTo(std::shared_ptr<StoredMatrix> matrix, int device,
                      absl::AnyInvocable<void(absl::Status) &&> done) = 0;

  // The form that `kernel` keeps of `matrix` on `device`, which has it, for
  // products through which k runs as it says; maybe still empty. Made where
  // there is none. Null: there is no room for it. The form is on the client's
  // account and stays beside the matrix until the room is needed for something
  // else or the matrix goes; while the pointer is held, it stays.
  virtual std::shared_ptr<OperandForm> KeepForm(
      absl::string_view client,
      const std::shared_ptr<const StoredMatrix>& matrix, int device,
      const PreparedSgemm& kernel, KDirection k) = 0;

  // Brings to.size() bytes of its numbers back, from byte `offset` on; they lie
  // inside. `done` is called once, on a thread of the device's, with an error
  // that is meant for the client.
  virtual void Read(std::shared_ptr<const StoredMatrix> matrix, size_t offset,
                    StagingBuffer to, Device::CopyDone done) = 0;

  // Complete or not, in order of id.
  virtual std::vector<MatrixInfo> List(absl::string_view client) = 0;

  // NOT_FOUND with ResourceInfo. Uses under way go on.
  virtual absl::Status Delete(absl::string_view client,
                              absl::string_view id) = 0;

  // Forgets what is past its time at `now`, and gives devices up that are stuck
  // then. The store's own thread does it with the present time; tests do it
  // with a time of their own.
  virtual void RemoveExpired(MonotonicTime now) = 0;

  // A device is stuck in a copy, which may still use its memory and whose
  // `done` has not been called: whoever waits for it may wait for ever.
  virtual bool stuck() const = 0;

  // Device bytes taken, of deleted matrices that are still used too; and at
  // most.
  virtual size_t used_bytes() const = 0;
  virtual size_t form_bytes() const = 0;  // of them, for forms
  virtual size_t capacity_bytes() const = 0;
  virtual int64_t matrices() const = 0;  // ids, of complete ones
};

}  // namespace gemmd
