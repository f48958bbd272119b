#include "kernels/registry.h"

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cuda/cuda_kernels.h"

namespace gemmd {
namespace {

KernelEntry Available(std::unique_ptr<const SgemmKernel> kernel) {
  KernelInfo info = kernel->info();
  return {.info = std::move(info),
          .kernel = std::move(kernel),
          .unavailable_reason = ""};
}

}  // namespace

KernelRegistry KernelRegistry::Create() {
  std::vector<KernelEntry> entries;
  entries.push_back(Available(MakeReferenceSgemm()));
  entries.push_back(OpenblasEntry());
  std::vector<KernelEntry> cuda = CudaKernelEntries();
  entries.insert(entries.end(), std::make_move_iterator(cuda.begin()),
                 std::make_move_iterator(cuda.end()));
  return KernelRegistry(std::move(entries));
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
  return absl::NotFoundError(absl::StrCat(
      "there is no kernel '", name, "'; there are ",
      absl::StrJoin(entries_, ", ",
                    [](std::string* out, const KernelEntry& entry) {
                      absl::StrAppend(out, entry.info.name);
                    })));
}

}  // namespace gemmd
