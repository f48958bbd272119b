#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/unit/kernels/test_machine.h"

namespace gemmd {
namespace {

// A copy at a chosen distance from a 256-byte boundary, on the heap and of the
// exact size, so that AddressSanitizer sees a read past it.
class AlignedCopy {
 public:
  explicit AlignedCopy(const Operand& operand)
      : size_(operand.memory.size()), offset_(operand.offset) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, size_ * sizeof(float) + 1) != 0) abort();
    memory_.reset(static_cast<float*>(memory));
    if (size_ > 0) {
      std::memcpy(memory, operand.memory.data(), size_ * sizeof(float));
    }
  }

  float* data() { return memory_.get() + offset_; }
  Operand Read() const {
    return {std::vector<float>(memory_.get(), memory_.get() + size_), offset_};
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  size_t size_;
  int64_t offset_;
  std::unique_ptr<float, Free> memory_;
};

}  // namespace

const KernelRegistry& TestRegistry() {
  static const KernelRegistry& registry =
      *new KernelRegistry(KernelRegistry::Create());
  return registry;
}

MemorySpace TestSpace() { return MemorySpace::kHost; }

bool KernelsMustRun() { return true; }

absl::StatusOr<std::vector<Operand>> RunKernel(
    const SgemmKernel& kernel, std::span<Problem* const> problems,
    const EditArgs& edit) {
  std::vector<AlignedCopy> copies;
  std::vector<SgemmArgs> batch;
  for (Problem* problem : problems) {
    SgemmArgs args = problem->args();
    args.a = copies.emplace_back(problem->a()).data();
    args.b = copies.emplace_back(problem->b()).data();
    args.c = copies.emplace_back(problem->c()).data();
    if (edit) edit(args);
    absl::Status status = kernel.Supports(args);
    if (!status.ok()) return status;
    batch.push_back(args);
  }
  absl::Status status = kernel.Launch(batch, LaunchContext{});
  if (!status.ok()) return status;
  std::vector<Operand> results;
  for (size_t i = 0; i < problems.size(); ++i) {
    results.push_back(copies[3 * i + 2].Read());
  }
  return results;
}

}  // namespace gemmd
