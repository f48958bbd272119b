#include "kernels/registry.h"

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/tuning_device.h"

namespace gemmd {
namespace {

KernelEntry Available(std::unique_ptr<const SgemmKernel> kernel) {
  KernelInfo info = kernel->info();
  return {.info = std::move(info),
          .kernel = std::move(kernel),
          .unavailable_reason = ""};
}

}  // namespace

KernelEntry UnavailableEntry(KernelInfo info, const absl::Status& why) {
  std::string reason = "it failed on this server's device";
  if (absl::IsFailedPrecondition(why)) {
    reason = std::string(why.message());
  } else if (absl::IsNotFound(why)) {
    reason = "a library that it needs is not installed on the server";
  }
  return {.info = std::move(info),
          .kernel = nullptr,
          .unavailable_reason = std::move(reason),
          .unavailable_detail = std::string(why.message())};
}

KernelRegistry KernelRegistry::Create(int device) {
  std::vector<KernelEntry> entries;
  entries.push_back(Available(MakeReferenceSgemm()));
  entries.push_back(OpenblasEntry());
  std::vector<KernelEntry> cuda = CudaKernelEntries(device);
  entries.insert(entries.end(), std::make_move_iterator(cuda.begin()),
                 std::make_move_iterator(cuda.end()));
  KernelRegistry registry(std::move(entries));
  if (const auto stamp = DeviceStamp(""); stamp.ok()) {
    registry.UseTable(ShippedTable(stamp->gpu));
  }
  return registry;
}

KernelRegistry::KernelRegistry(std::vector<KernelEntry> entries)
    : entries_(std::move(entries)) {}

absl::StatusOr<const SgemmKernel*> KernelRegistry::Find(
    absl::string_view name) const {
  for (const KernelEntry& entry : entries_) {
    if (entry.info.name != name) continue;
    if (entry.kernel != nullptr) return entry.kernel.get();
    return absl::FailedPreconditionError(absl::StrCat(
        "the kernel ", name, " cannot run here: ", entry.unavailable_reason));
  }
  std::vector<absl::string_view> names;
  for (const KernelEntry& entry : entries_) {
    if (entry.kernel != nullptr) names.push_back(entry.info.name);
  }
  return absl::NotFoundError(absl::StrCat("there is no kernel '", name,
                                          "'; those that can run here are ",
                                          absl::StrJoin(names, ", ")));
}

}  // namespace gemmd
