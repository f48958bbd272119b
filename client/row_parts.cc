#include "client/row_parts.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace gemmd::client {
namespace {

// Less is moved sooner than a second stream is up to speed.
constexpr uint64_t kPartBytes = uint64_t{8} << 20;

}  // namespace

absl::Status ForEachPart(
    int64_t rows, uint64_t row_bytes, int connections,
    absl::FunctionRef<absl::Status(int64_t first, int64_t count)> transfer) {
  const auto total = static_cast<uint64_t>(rows) * row_bytes;
  const auto parts = static_cast<int64_t>(std::clamp<uint64_t>(
      std::min<uint64_t>(total / kPartBytes, rows), 1, connections));
  std::vector<absl::Status> results(parts);
  const auto work = [&](int64_t part) {
    const int64_t first = rows * part / parts;
    const int64_t end = rows * (part + 1) / parts;
    results[part] = transfer(first, end - first);
  };
  {
    std::vector<std::jthread> others;
    for (int64_t part = 1; part < parts; ++part)
      others.emplace_back(work, part);
    work(0);
  }
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

}  // namespace gemmd::client
