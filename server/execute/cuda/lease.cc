#include "server/execute/cuda/lease.h"

#include <utility>

namespace gemmd {
namespace {

absl::Status AddCublas(Lease& lease) {
  const absl::StatusOr<const CublasLibrary*> library = CublasLibrary::Get();
  if (!library.ok()) return absl::OkStatus();  // the registry says why
  absl::StatusOr<DeviceMemory> workspace =
      MakeDeviceMemory(kCublasWorkspaceBytes);
  if (!workspace.ok()) return workspace.status();
  absl::StatusOr<CublasHandle> handle = (*library)->CreateHandle(
      lease.stream.get(), workspace->get(), kCublasWorkspaceBytes);
  if (!handle.ok()) return handle.status();
  lease.cublas_workspace = *std::move(workspace);
  lease.cublas = *std::move(handle);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Lease> MakeLease() {
  Lease lease;
  absl::StatusOr<CudaStream> stream = MakeStream();
  if (!stream.ok()) return stream.status();
  lease.stream = *std::move(stream);
  for (CudaEvent* const event :
       {&lease.started, &lease.copied_in, &lease.computed, &lease.copied_out}) {
    absl::StatusOr<CudaEvent> made = MakeEvent();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  if (absl::Status status = AddCublas(lease); !status.ok()) return status;
  return lease;
}

}  // namespace gemmd
