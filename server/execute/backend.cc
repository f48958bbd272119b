#include "server/execute/backend.h"

#include <utility>

namespace gemmd {
namespace {

absl::Status NoResidentMemory() {
  return absl::UnimplementedError("the device keeps no resident matrices");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ResidentMemory>> Device::AllocateResident(
    size_t) {
  return NoResidentMemory();
}

void Device::CopyIn(ResidentMemory&, size_t, StagingBuffer from,
                    CopyDone done) {
  std::move(done)(NoResidentMemory(), std::move(from));
}

void Device::CopyOut(const ResidentMemory&, size_t, StagingBuffer to,
                     CopyDone done) {
  std::move(done)(NoResidentMemory(), std::move(to));
}

void Device::CopyFrom(const ResidentMemory&, const ResidentMemory&, size_t,
                      size_t, absl::AnyInvocable<void(absl::Status) &&> done) {
  std::move(done)(NoResidentMemory());
}

}  // namespace gemmd
