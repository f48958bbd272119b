// What a server says about itself.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gemmd/sgemm.h"

namespace gemmd {

// The answer of Client::GetServerInfo.
struct ServerInfo {
  // Something that multiplies.
  struct Device {
    uint32_t index = 0;
    std::string name;
    uint64_t memory_bytes = 0;
    std::string compute_capability;  // as "9.0"; empty for a CPU
    uint32_t streams = 0;            // batches it runs at the same time
  };

  // A way to multiply, whether it can run there or not.
  struct Kernel {
    std::string name;
    std::string backend;  // "cpu" or "cuda"
    SgemmCall::Precision precision = SgemmCall::Precision::kFp32;
    std::string description;
    bool available = false;
    std::string unavailable_reason;  // when it is not
    bool batch_invariant = false;    // its bits do not depend on batch-mates
  };

  // What is accepted; 0: no limit.
  struct Limits {
    uint64_t max_inline_bytes = 0;  // a whole request, and a whole answer
    uint64_t max_queue_requests = 0;
    uint64_t max_queue_bytes = 0;
    uint64_t max_batch_requests = 0;
    absl::Duration max_queue_delay;
    uint64_t matrix_store_bytes = 0;
    uint64_t max_chunk_bytes = 0;
    bool shared_memory = false;
  };

  std::string version;
  std::string build;
  std::string backend;  // "cpu" or "cuda"
  std::vector<Device> devices;
  std::vector<Kernel> kernels;
  Limits limits;
};

// What a health check says.
enum class ServerHealth {
  kServing,
  kNotServing,  // starting, draining or broken
  kUnknown,     // the server does not say
};

}  // namespace gemmd
