// The kernels of this build, and which of them the present machine can run.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/selection_table.h"
#include "kernels/sgemm.h"

namespace gemmd {

// A kernel's line in the registry.
struct KernelEntry {
  KernelInfo info;
  std::unique_ptr<const SgemmKernel> kernel;  // null where it cannot run
  std::string unavailable_reason;             // empty where it can; for clients
  std::string unavailable_detail = {};        // more, for the log alone
};

// The entry of a kernel that cannot run for `why`. The message of a
// FAILED_PRECONDITION is for everybody. That of another code may name paths and
// functions, so clients are told no more than what kind of thing is missing:
// for NOT_FOUND a library, else something that failed.
KernelEntry UnavailableEntry(KernelInfo info, const absl::Status& why);

// Every kernel the project has, in the order of the ladder, host kernels
// first. A kernel that this build or this machine lacks is listed too, with the
// reason.
//
// Thread-safety: immutable after UseTable, which comes before other threads.
class KernelRegistry {
 public:
  // Looks at the machine (driver, CUDA device `device`, cuBLAS) and never
  // fails: what is missing becomes an entry's reason. Devices of one registry
  // should be of one kind. `device` is then the calling thread's current one.
  // Has the table that ships for it, if there is one.
  static KernelRegistry Create(int device = 0);

  explicit KernelRegistry(std::vector<KernelEntry> entries);

  std::span<const KernelEntry> entries() const { return entries_; }

  // The kernel of that name. NOT_FOUND, naming those that can run here, if
  // there is none; FAILED_PRECONDITION with the reason if it cannot run here.
  absl::StatusOr<const SgemmKernel*> Find(absl::string_view name) const;

  // What `auto` goes by for device kernels (selection.h); null: by a rule.
  const SelectionTable* table() const { return table_.get(); }
  void UseTable(std::shared_ptr<const SelectionTable> table) {
    table_ = std::move(table);
  }

 private:
  std::vector<KernelEntry> entries_;
  std::shared_ptr<const SelectionTable> table_;
};

}  // namespace gemmd
