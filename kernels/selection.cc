#include "kernels/selection.h"

#include <array>
#include <span>
#include <string>

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
constexpr std::array<absl::string_view, 3> kDeviceOrder = {
    "cublas", "double_buffered", "naive"};
// A product of one tile and a short k is over before a second launch could
// start, so it goes where a whole batch is one launch.
constexpr std::array<absl::string_view, 3> kSmallDeviceOrder = {
    "double_buffered", "cublas", "naive"};

bool IsSmall(const GemmShape& s) {
  return s.m <= 128 && s.n <= 128 && s.k <= 256;
}

std::span<const absl::string_view> Order(MemorySpace space,
                                         const GemmShape& shape) {
  if (space == MemorySpace::kHost) return kHostOrder;
  if (IsSmall(shape)) return kSmallDeviceOrder;
  return kDeviceOrder;
}

absl::StatusOr<const SgemmKernel*> SelectAuto(const KernelRegistry& registry,
                                              MemorySpace space,
                                              const SgemmArgs& args,
                                              Precision precision) {
  std::string reasons;
  for (absl::string_view name : Order(space, args.shape)) {
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
  const absl::StatusOr<const SgemmKernel*> kernel =
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
