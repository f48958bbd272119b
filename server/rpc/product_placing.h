// A product with something resident comes to a device.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/mutex.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/sgemm_validation.h"
#include "server/schedule/row_split.h"
#include "server/schedule/task.h"
#include "server/store/matrix_store.h"

namespace gemmd {

// Finds the resident operands of one product, chooses the device that it runs
// on, copies there what lies elsewhere and makes room for a resident output; of
// a product that is shared by rows, for each part. Where there is no room for
// all that, the product runs on the device that has most of its operands.
//
// Thread-safety: Begin once, then nothing until `done` was called; on one
// thread at a time after that.
class ProductPlacing {
 public:
  // What is placed. All but `environment` belongs to the product, and outlives
  // the placing.
  struct Product {
    CallEnvironment* environment;
    const std::string* client;
    const SgemmPlan* plan;
    TaskSpec* spec;               // gets its device, operands and output
    std::vector<RowPart>* parts;  // likewise; empty: it is not split
  };
  using Done = absl::AnyInvocable<void(const absl::Status&) &&>;

  // `done` is called once, maybe before this returns, and may destroy the
  // placing. Errors: NOT_FOUND with ResourceInfo, INVALID_ARGUMENT for a matrix
  // of another shape, those of MatrixStore::BeginOutput and CopyTo.
  void Begin(const Product& product, Done done) ABSL_LOCKS_EXCLUDED(mu_);

  // Publishes the output under its name; the name. "" without an output.
  std::string CommitOutput();

  // Lets go of the operands, and of an output that was not committed.
  void Release();

 private:
  void Place() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status FindOperands();
  absl::Status FindOperand(absl::string_view name, const OperandPlan& plan,
                           TaskOperand& operand);
  bool IsSplitWhereItLies() const;
  int DeviceFor(bool copies) const;
  void PlaceOn(int device) ABSL_LOCKS_EXCLUDED(mu_);
  void PlaceOnOne() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MakeRoomForOutput();
  void OnPlaced(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnNotPlaced(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void KeepForms();
  void End(const absl::Status& status);
  MatrixStore& store() const {
    return *product_.environment->dependencies.store;
  }

  Product product_ = {};
  Done done_;
  std::vector<std::shared_ptr<StoredMatrix>> operands_;
  std::unique_ptr<PendingOutput> output_;
  std::vector<std::unique_ptr<PendingOutput>> part_outputs_;
  bool on_one_ = false;         // for want of room; no other way is left
  std::atomic<int> copies_{0};  // under way, and one for their start

  Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // of the copies
};

}  // namespace gemmd
