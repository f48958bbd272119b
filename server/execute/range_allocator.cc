#include "server/execute/range_allocator.h"

#include <iterator>

namespace gemmd {

RangeAllocator::RangeAllocator(size_t capacity)
    : capacity_(capacity / kAlignment * kAlignment) {
  if (capacity_ > 0) Insert(0, capacity_);
}

std::optional<size_t> RangeAllocator::Allocate(size_t size) {
  if (size > capacity_) return std::nullopt;  // also keeps RoundUp in range
  const size_t rounded = RoundUp(size);
  const auto fit = by_size_.lower_bound({rounded, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [free_size, offset] = *fit;
  Erase(by_offset_.find(offset));
  if (free_size > rounded) Insert(offset + rounded, free_size - rounded);
  used_ += rounded;
  return offset;
}

void RangeAllocator::Free(size_t offset, size_t size) {
  size_t end = offset + RoundUp(size);
  used_ -= end - offset;
  const auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      Erase(previous);
    }
  }
  if (next != by_offset_.end() && next->first == end) {
    end += next->second;
    Erase(next);
  }
  Insert(offset, end - offset);
}

size_t RangeAllocator::largest_free() const {
  return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

void RangeAllocator::Insert(size_t offset, size_t size) {
  by_offset_.emplace(offset, size);
  by_size_.emplace(size, offset);
}

void RangeAllocator::Erase(FreeByOffset::iterator it) {
  by_size_.erase({it->second, it->first});
  by_offset_.erase(it);
}

}  // namespace gemmd
