#include "gemmd/shared_memory.h"

#include <utility>

#include "client/shared_blocks.h"

namespace gemmd {

SharedMemory::SharedMemory(std::shared_ptr<client::SharedBlock> block)
    : block_(std::move(block)) {}
SharedMemory::~SharedMemory() = default;
SharedMemory::SharedMemory(SharedMemory&&) noexcept = default;
SharedMemory& SharedMemory::operator=(SharedMemory&&) noexcept = default;

std::byte* SharedMemory::data() const {
  return block_ == nullptr ? nullptr : block_->data();
}

size_t SharedMemory::bytes() const {
  return block_ == nullptr ? 0 : block_->bytes();
}

MutableMatrixView SharedMemory::Matrix(int64_t rows, int64_t cols,
                                       size_t offset) const {
  return {reinterpret_cast<float*>(data() + offset), rows, cols, cols};
}

}  // namespace gemmd
