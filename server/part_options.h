// From what the operator decided to what each part of the server is told.

#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/options.h"
#include "server/rpc/service.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"
#include "server/store/matrix_store.h"

namespace gemmd {

AdmissionOptions AdmissionOptionsOf(const ServerOptions& options);
BackendOptions BackendOptionsOf(const ServerOptions& options);
BatchSchedulerOptions SchedulerOptionsOf(const ServerOptions& options);
MatrixStoreOptions MatrixStoreOptionsOf(const ServerOptions& options);
TlsFiles TlsFilesOf(const ServerOptions& options);
// `container_limit`: see ContainerMemoryLimit.
RpcOptions RpcOptionsOf(const ServerOptions& options,
                        std::optional<size_t> container_limit);

// Whether --kernel can run on `backend`: one that never could is an error now
// and not of every request. INVALID_ARGUMENT.
absl::Status CheckKernelOption(const ServerOptions& options,
                               const KernelRegistry& registry,
                               const Backend& backend);

}  // namespace gemmd
