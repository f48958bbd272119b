// From what the operator decided to what each part of the server is told.

#pragma once

#include "server/execute/backend.h"
#include "server/options.h"
#include "server/rpc/service.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"

namespace gemmd {

AdmissionOptions AdmissionOptionsOf(const ServerOptions& options);
BackendOptions BackendOptionsOf(const ServerOptions& options);
BatchSchedulerOptions SchedulerOptionsOf(const ServerOptions& options);
RpcOptions RpcOptionsOf(const ServerOptions& options);

}  // namespace gemmd
