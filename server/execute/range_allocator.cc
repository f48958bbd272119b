#include "server/execute/range_allocator.h"

#include <iterator>
#include <utility>

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
  const auto piece = by_offset_.find(offset);
  if (free_size > rounded) {
    Change(piece, offset + rounded, free_size - rounded);
  } else {
    Erase(piece);
  }
  used_ += rounded;
  return offset;
}

void RangeAllocator::Free(size_t offset, size_t size) {
  const size_t rounded = RoundUp(size);
  used_ -= rounded;
  const auto next = by_offset_.lower_bound(offset);
  const auto previous =
      next == by_offset_.begin() ? by_offset_.end() : std::prev(next);
  const bool joins_next =
      next != by_offset_.end() && next->first == offset + rounded;
  const bool joins_previous = previous != by_offset_.end() &&
                              previous->first + previous->second == offset;
  const size_t behind = joins_next ? next->second : 0;
  if (joins_previous) {
    Change(previous, previous->first, previous->second + rounded + behind);
    if (joins_next) Erase(next);
  } else if (joins_next) {
    Change(next, offset, rounded + behind);
  } else {
    Insert(offset, rounded);
  }
}

size_t RangeAllocator::largest_free() const {
  return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

void RangeAllocator::Insert(size_t offset, size_t size) {
  by_offset_.emplace(offset, size);
  by_size_.emplace(size, offset);
}

void RangeAllocator::Change(FreeByOffset::iterator it, size_t offset,
                            size_t size) {
  auto sized = by_size_.extract({it->second, it->first});
  sized.value() = {size, offset};
  by_size_.insert(std::move(sized));
  if (it->first == offset) {
    it->second = size;
    return;
  }
  auto piece = by_offset_.extract(it);
  piece.key() = offset;
  piece.mapped() = size;
  by_offset_.insert(std::move(piece));
}

void RangeAllocator::Erase(FreeByOffset::iterator it) {
  by_size_.erase({it->second, it->first});
  by_offset_.erase(it);
}

}  // namespace gemmd
