#include "client/sent_resources.h"

#include <algorithm>
#include <utility>

#include "proto/error_details.h"

namespace gemmd::client {
namespace {

constexpr char kRegionType[] = "gemmd.v1.SharedMemorySlice";
constexpr char kMatrixType[] = "gemmd.v1.Matrix";

bool IsRegionMissing(const absl::Status& status) {
  return !MissingResource(status, kRegionType).empty();
}

}  // namespace

std::string MissingMatrix(const absl::Status& status) {
  return MissingResource(status, kMatrixType);
}

void SentResources::Clear() {
  matrices_.clear();
  regions_.clear();
}

void SentResources::Add(std::shared_ptr<Residence> matrix) {
  const int restored = matrix->restored();
  matrices_.push_back({std::move(matrix), restored});
}

void SentResources::AddMemory(const MatrixView& x, const SharedBlocks& shared) {
  const SharedPlace place = shared.Find(x);
  if (place.block == nullptr) return;
  regions_.push_back({place.block, place.block->region_id()});
}

bool SentResources::CanRestore(const absl::Status& missing) const {
  if (IsRegionMissing(missing)) return !regions_.empty();
  return std::any_of(matrices_.begin(), matrices_.end(),
                     [&](const SentMatrix& sent) {
                       return sent.residence->MayBeRestored(missing);
                     });
}

absl::Status SentResources::Restore(const absl::Status& missing,
                                    const Session& session,
                                    Operation* operation) const {
  if (IsRegionMissing(missing)) {
    absl::Status status;
    for (const SentRegion& sent : regions_) {
      if (status.ok()) status = sent.block->Renew(sent.region_id);
    }
    return status;
  }
  const std::string id = MissingMatrix(missing);
  for (const SentMatrix& sent : matrices_) {
    if (sent.residence->id() != id) continue;
    return sent.residence->Restore(session, sent.restored, operation);
  }
  return absl::OkStatus();
}

}  // namespace gemmd::client
