// Requests of the benchmarks, and a plain client for them. What fails ends the
// program: a benchmark has no use for half a result.

#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <memory>
#include <string>

#include "gemmd/v1/gemm_service.grpc.pb.h"

namespace gemmd {

// Numbers between -1 and 1, the same for the same seed.
std::string RandomBytes(size_t floats, unsigned seed = 1);

void SetOperand(int rows, int cols, v1::Operand* operand, unsigned seed = 1);
void SetResident(int rows, int cols, const std::string& id,
                 v1::Operand* operand);

void ExitUnless(const grpc::Status& status, const char* what);

std::unique_ptr<v1::GemmService::Stub> Connect(const std::string& address);

}  // namespace gemmd
