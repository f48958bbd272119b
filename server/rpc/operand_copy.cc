#include "server/rpc/operand_copy.h"

#include <google/protobuf/io/coded_stream.h>

namespace gemmd {

void CopyBytes(std::span<const ByteSlice> slices, const ByteRange& range,
               std::byte* to) {
  ByteStream stream(slices);
  google::protobuf::io::CodedInputStream in(&stream);
  in.Skip(static_cast<int>(range.offset));
  in.ReadRaw(to, static_cast<int>(range.size));
}

void CopyOperand(std::span<const ByteSlice> slices, const OperandPlan& operand,
                 std::byte* to) {
  const size_t bytes = operand.packed_bytes();
  if (bytes == 0) return;
  to += operand.offset;
  if (operand.leading_dimension == operand.cols) {
    return CopyBytes(slices, {operand.source.offset, bytes}, to);
  }
  ByteStream stream(slices);
  google::protobuf::io::CodedInputStream in(&stream);
  in.Skip(static_cast<int>(operand.source.offset));
  const int row_bytes = static_cast<int>(operand.cols * sizeof(float));
  const int padding_bytes = static_cast<int>(
      (operand.leading_dimension - operand.cols) * sizeof(float));
  for (uint64_t row = 0; row < operand.rows; ++row) {
    if (row > 0) in.Skip(padding_bytes);
    in.ReadRaw(to, row_bytes);
    to += row_bytes;
  }
}

}  // namespace gemmd
