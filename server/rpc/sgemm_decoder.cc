#include "server/rpc/sgemm_decoder.h"

#include "gemmd/v1/sgemm.pb.h"
#include "server/rpc/wire_fields.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {
namespace {

constexpr auto kVarint = WireType::kVarint;
constexpr auto kLength = WireType::kLength;
constexpr auto kFixed32 = WireType::kFixed32;

bool ReadSlice(WireReader& in, SharedMemorySliceFields& slice) {
  using Message = v1::SharedMemorySlice;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kRegionIdFieldNumber, kLength):
        return in.ReadBytes(&slice.region_id);
      case WireTag(Message::kOffsetFieldNumber, kVarint):
        return in.ReadUint64(&slice.offset);
      default:
        return in.Skip(tag);
    }
  });
}

bool ReadOperand(WireReader& in, OperandFields& operand) {
  using Message = v1::Operand;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kRowsFieldNumber, kVarint):
        return in.ReadUint64(&operand.rows);
      case WireTag(Message::kColsFieldNumber, kVarint):
        return in.ReadUint64(&operand.cols);
      case WireTag(Message::kLeadingDimensionFieldNumber, kVarint):
        return in.ReadUint64(&operand.leading_dimension);
      case WireTag(Message::kMatrixIdFieldNumber, kLength):
        return in.ReadString(&Merged<MatrixIdField>(operand.source).id);
      case WireTag(Message::kSharedMemoryFieldNumber, kLength):
        return ReadSlice(in, Merged<SharedMemorySliceFields>(operand.source));
      case WireTag(Message::kDataFieldNumber, kLength):
        return in.ReadRange(&Merged<ByteRange>(operand.source));
      default:
        return in.Skip(tag);
    }
  });
}

bool ReadResidentOutput(WireReader& in, ResidentOutputFields& output) {
  using Message = v1::ResidentOutput;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kMatrixIdFieldNumber, kLength):
        return in.ReadString(&output.matrix_id);
      case WireTag(Message::kTtlFieldNumber, kLength):
        return ReadDuration(in, Merged(output.ttl));
      default:
        return in.Skip(tag);
    }
  });
}

bool ReadSharedMemoryOutput(WireReader& in, SharedMemoryOutputFields& output) {
  using Message = v1::SharedMemoryOutput;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kSliceFieldNumber, kLength):
        return ReadSlice(in, Merged(output.slice));
      case WireTag(Message::kLeadingDimensionFieldNumber, kVarint):
        return in.ReadUint64(&output.leading_dimension);
      default:
        return in.Skip(tag);
    }
  });
}

bool ReadOutput(WireReader& in, OutputFields& output) {
  using Message = v1::Output;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kInlineFieldNumber, kLength):
        Merged<InlineOutputFields>(output);
        return in.ReadMessage([&](uint32_t inner) { return in.Skip(inner); });
      case WireTag(Message::kResidentFieldNumber, kLength):
        return ReadResidentOutput(in, Merged<ResidentOutputFields>(output));
      case WireTag(Message::kSharedMemoryFieldNumber, kLength):
        return ReadSharedMemoryOutput(in,
                                      Merged<SharedMemoryOutputFields>(output));
      default:
        return in.Skip(tag);
    }
  });
}

// The field of a SgemmRequest whose tag has just been read.
bool ReadRequestField(WireReader& in, uint32_t tag, SgemmFields& fields) {
  using Message = v1::SgemmRequest;
  switch (tag) {
    case WireTag(Message::kTransposeAFieldNumber, kVarint):
      return in.ReadBool(&fields.transpose_a);
    case WireTag(Message::kTransposeBFieldNumber, kVarint):
      return in.ReadBool(&fields.transpose_b);
    case WireTag(Message::kAlphaFieldNumber, kFixed32):
      return in.ReadFloat(&Merged(fields.alpha));
    case WireTag(Message::kBetaFieldNumber, kFixed32):
      return in.ReadFloat(&Merged(fields.beta));
    case WireTag(Message::kPrecisionFieldNumber, kVarint):
      return in.ReadInt32(&fields.precision);
    case WireTag(Message::kKernelFieldNumber, kLength):
      return in.ReadString(&Merged(fields.kernel));
    case WireTag(Message::kPriorityFieldNumber, kVarint):
      return in.ReadInt32(&fields.priority);
    case WireTag(Message::kRequestIdFieldNumber, kLength):
      return in.ReadString(&fields.request_id);
    case WireTag(Message::kOutputFieldNumber, kLength):
      return ReadOutput(in, fields.output);
    case WireTag(Message::kAFieldNumber, kLength):
      return ReadOperand(in, Merged(fields.a));
    case WireTag(Message::kBFieldNumber, kLength):
      return ReadOperand(in, Merged(fields.b));
    case WireTag(Message::kCFieldNumber, kLength):
      return ReadOperand(in, Merged(fields.c));
    default:
      return in.Skip(tag);
  }
}

}  // namespace

absl::StatusOr<SgemmFields> DecodeSgemm(std::span<const ByteSlice> slices) {
  WireReader in(slices);
  SgemmFields fields;
  const bool whole = in.ReadFields(
      [&](uint32_t tag) { return ReadRequestField(in, tag, fields); });
  if (!whole) return BrokenMessageError("gemmd.v1.SgemmRequest", slices, in);
  return fields;
}

absl::StatusOr<SgemmStreamFields> DecodeSgemmStream(
    std::span<const ByteSlice> slices) {
  using Message = v1::SgemmStreamRequest;
  WireReader in(slices);
  SgemmStreamFields fields;
  const bool whole = in.ReadFields([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kSequenceFieldNumber, kVarint):
        return in.ReadUint64(&fields.sequence);
      case WireTag(Message::kRequestFieldNumber, kLength): {
        SgemmFields& request = Merged(fields.request);
        return in.ReadMessage([&](uint32_t inner) {
          return ReadRequestField(in, inner, request);
        });
      }
      default:
        return in.Skip(tag);
    }
  });
  if (!whole) {
    return BrokenMessageError("gemmd.v1.SgemmStreamRequest", slices, in);
  }
  return fields;
}

}  // namespace gemmd
