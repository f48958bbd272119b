#include "kernels/selection.h"

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

absl::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "FP32";
    case Precision::kFp32Emulated:
      return "FP32_EMULATED";
    case Precision::kTf32:
      return "TF32";
  }
  return "";
}

absl::string_view Name(MemorySpace space) {
  return space == MemorySpace::kHost ? "the CPU" : "a CUDA device";
}

// The enumerators are in order of strictness.
bool Satisfies(Precision precision, Precision floor) {
  return precision <= floor;
}

constexpr std::array<absl::string_view, 2> kHostOrder = {"openblas",
                                                         "reference"};
// The rule for a device that no table was measured on: orders by the shape,
// from the ladder's measurements (kernels/README.md). What is not there or is
// below the precision asked for is passed over.
constexpr std::array<absl::string_view, 5> kLargeDeviceOrder = {
    "sm90_bf16x6", "sm90_ffma", "cublas", "double_buffered", "naive"};
constexpr std::array<absl::string_view, 5> kLargeLibraryFirstOrder = {
    "sm90_bf16x6", "cublas", "sm90_ffma", "double_buffered", "naive"};
constexpr std::array<absl::string_view, 4> kDeviceOrder = {
    "sm90_ffma", "cublas", "double_buffered", "naive"};
constexpr std::array<absl::string_view, 4> kLibraryFirstOrder = {
    "cublas", "sm90_ffma", "double_buffered", "naive"};
// A small product is over before a second launch could start, so it goes where
// a whole batch is one launch.
constexpr std::array<absl::string_view, 4> kSmallDeviceOrder = {
    "small_tiles", "double_buffered", "cublas", "naive"};

bool IsSmall(const GemmShape& s) {
  return s.m <= 128 && s.n <= 128 && s.k <= 256;
}

// Where cuBLAS is ahead of sm90_ffma: half of a tile's rows would be idle, or
// one tile would be cut into more slices than can be added up quickly.
bool IsSkinnyOrDeep(const GemmShape& s) {
  return s.m <= 64 || s.n <= 64 ||
         (s.k > 8192 && s.m * s.n <= int64_t{512} * 512);
}

// sm90_ffma first copies an operand that is not aligned. With a short k that is
// not made up for.
bool IsShortAndUnaligned(const SgemmArgs& args) {
  const auto is_aligned = [](const float* x, int64_t ld) {
    return reinterpret_cast<uintptr_t>(x) % 16 == 0 && ld % 4 == 0;
  };
  return args.shape.k < 2048 &&
         (!is_aligned(args.a, args.lda) || !is_aligned(args.b, args.ldb));
}

// Where it is made up for that sm90_bf16x6 splits the operands first.
bool IsLarge(const GemmShape& s) {
  return s.k >= 1024 && s.m >= 1024 && s.n >= 1024 &&
         static_cast<double>(s.m) * s.n >= 1536.0 * 1536.0;
}

std::span<const absl::string_view> Order(MemorySpace space,
                                         const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  if (space == MemorySpace::kHost) return kHostOrder;
  if (IsSmall(s)) return kSmallDeviceOrder;
  const bool library_first = IsSkinnyOrDeep(s) || IsShortAndUnaligned(args);
  if (IsLarge(s)) {
    return library_first ? kLargeLibraryFirstOrder : kLargeDeviceOrder;
  }
  return library_first ? kLibraryFirstOrder : kDeviceOrder;
}

// The kernel that the table says is the fastest of those that can; null where
// it knows of none.
const SgemmKernel* SelectByTable(const KernelRegistry& registry,
                                 const SgemmArgs& args, Precision precision) {
  const SelectionTable& table = *registry.table();
  std::vector<double> us(table.kernels().size());
  table.Predict(args, us);
  const SgemmKernel* best = nullptr;
  double best_us = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < us.size(); ++i) {
    if (us[i] >= best_us) continue;
    const auto kernel = registry.Find(table.kernels()[i]);
    if (!kernel.ok() || !Satisfies((*kernel)->info().precision, precision) ||
        !(*kernel)->Supports(args).ok()) {
      continue;
    }
    best = *kernel;
    best_us = us[i];
  }
  return best;
}

absl::StatusOr<const SgemmKernel*> SelectAuto(const KernelRegistry& registry,
                                              MemorySpace space,
                                              const SgemmArgs& args,
                                              Precision precision) {
  if (space == MemorySpace::kDevice && registry.table() != nullptr) {
    const SgemmKernel* kernel = SelectByTable(registry, args, precision);
    if (kernel != nullptr) return kernel;
  }
  std::string reasons;
  for (absl::string_view name : Order(space, args)) {
    absl::StatusOr<const SgemmKernel*> kernel = registry.Find(name);
    absl::Status status = kernel.status();
    if (status.ok() && !Satisfies((*kernel)->info().precision, precision)) {
      continue;
    }
    if (status.ok()) status = (*kernel)->Supports(args);
    if (status.ok()) return *kernel;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", status.message());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no kernel of ", Name(space), " can do this request: ", reasons));
}

absl::StatusOr<const SgemmKernel*> SelectNamed(const KernelRegistry& registry,
                                               MemorySpace space,
                                               const SgemmArgs& args,
                                               Precision precision,
                                               absl::string_view name) {
  absl::StatusOr<const SgemmKernel*> kernel = registry.Find(name);
  if (absl::IsNotFound(kernel.status())) {
    return absl::NotFoundError(absl::StrCat("there is no kernel '", name, "'"));
  }
  if (!kernel.ok()) return kernel;
  const KernelInfo& info = (*kernel)->info();
  if (info.space != space) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel ", name, " runs on ", Name(info.space),
                     "; this server computes on ", Name(space)));
  }
  if (!Satisfies(info.precision, precision)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the kernel ", name, " gives ", Name(info.precision),
                     "; the request asks for ", Name(precision)));
  }
  absl::Status supported = (*kernel)->Supports(args);
  if (!supported.ok()) return supported;
  return kernel;
}

}  // namespace

absl::StatusOr<const SgemmKernel*> SelectKernel(const KernelRegistry& registry,
                                                MemorySpace space,
                                                const SgemmArgs& args,
                                                Precision precision,
                                                absl::string_view name) {
  absl::StatusOr<const SgemmKernel*> kernel =
      name.empty() || name == "auto"
          ? SelectAuto(registry, space, args, precision)
          : SelectNamed(registry, space, args, precision, name);
  if (kernel.ok()) return kernel;
  return absl::Status(
      kernel.status().code(),
      absl::StrCat(kernel.status().message(), "; the kernels of this server: ",
                   RunnableKernels(registry, space)));
}

std::string RunnableKernels(const KernelRegistry& registry, MemorySpace space) {
  std::string names;
  for (const KernelEntry& entry : registry.entries()) {
    if (entry.kernel == nullptr || entry.info.space != space) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.info.name);
  }
  return names.empty() ? "none" : names;
}

}  // namespace gemmd
