// From the message to staging memory: the second of the two passes over a
// request, and the only copy that the server makes of what is sent to it.

#pragma once

#include <cstddef>
#include <span>

#include "server/rpc/byte_stream.h"
#include "server/rpc/operand_validation.h"

namespace gemmd {

// Copies `range` of the message to `to`. Needs: the range lies inside.
void CopyBytes(std::span<const ByteSlice> slices, const ByteRange& range,
               std::byte* to);

// Copies the operand's rows, packed, to `to` + operand.offset. Padding between
// rows is left out.
//
// Needs: `operand` is of a plan made from these slices; rows * cols * 4 bytes
// are there to be written.
void CopyOperand(std::span<const ByteSlice> slices, const OperandPlan& operand,
                 std::byte* to);

}  // namespace gemmd
