// Which parts of a contiguous range are taken: the arithmetic under every
// memory pool, without the memory.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gemmd {

// Gives out pieces of [0, capacity), best fit, lowest address first among
// equals, and joins what comes back with its free neighbours. So memory that
// was used before is used again before memory that never was.
//
// Pure. Allocate and Free are O(log n) in the free pieces. Thread-compatible.
class RangeAllocator {
 public:
  // Every piece starts at a multiple of this and takes a multiple of it.
  static constexpr size_t kAlignment = 256;

  static constexpr size_t RoundUp(size_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  // `capacity` is rounded down to the alignment.
  explicit RangeAllocator(size_t capacity);

  // The offset of `size` bytes (size > 0); nullopt if no free piece holds them.
  std::optional<size_t> Allocate(size_t size);

  // Needs: offset and size of one Allocate, not yet freed.
  void Free(size_t offset, size_t size);

  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }  // rounded sizes
  // The largest `size` that Allocate would now grant; 0 if none.
  size_t largest_free() const;

 private:
  using FreeByOffset = std::map<size_t, size_t>;  // offset -> size
  void Insert(size_t offset, size_t size);
  // The free piece is now there and so large: it keeps its nodes, since most
  // requests take from one piece and give back to it.
  void Change(FreeByOffset::iterator it, size_t offset, size_t size);
  void Erase(FreeByOffset::iterator it);

  const size_t capacity_;
  size_t used_ = 0;
  FreeByOffset by_offset_;
  std::set<std::pair<size_t, size_t>> by_size_;  // (size, offset)
};

}  // namespace gemmd
