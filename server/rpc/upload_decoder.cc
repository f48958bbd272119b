#include "server/rpc/upload_decoder.h"

#include "gemmd/v1/matrix.pb.h"
#include "server/rpc/wire_fields.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {
namespace {

constexpr auto kVarint = WireType::kVarint;
constexpr auto kLength = WireType::kLength;

bool ReadHeader(WireReader& in, UploadHeaderFields& header) {
  using Message = v1::UploadHeader;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kRowsFieldNumber, kVarint):
        return in.ReadUint64(&header.rows);
      case WireTag(Message::kColsFieldNumber, kVarint):
        return in.ReadUint64(&header.cols);
      case WireTag(Message::kMatrixIdFieldNumber, kLength):
        return in.ReadString(&header.matrix_id);
      case WireTag(Message::kTtlFieldNumber, kLength):
        return ReadDuration(in, Merged(header.ttl));
      case WireTag(Message::kDigestFieldNumber, kLength):
        return in.ReadBytes(&header.digest);
      case WireTag(Message::kFirstRowFieldNumber, kVarint):
        return in.ReadUint64(&header.first_row);
      case WireTag(Message::kRowCountFieldNumber, kVarint):
        return in.ReadUint64(&header.row_count);
      default:
        return in.Skip(tag);
    }
  });
}

}  // namespace

absl::StatusOr<UploadFields> DecodeUpload(std::span<const ByteSlice> slices) {
  using Message = v1::UploadMatrixRequest;
  WireReader in(slices);
  UploadFields fields;
  const bool whole = in.ReadFields([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kHeaderFieldNumber, kLength):
        return ReadHeader(in, Merged<UploadHeaderFields>(fields));
      case WireTag(Message::kChunkFieldNumber, kLength):
        return in.ReadRange(&Merged<ByteRange>(fields));
      default:
        return in.Skip(tag);
    }
  });
  if (!whole) {
    return BrokenMessageError("gemmd.v1.UploadMatrixRequest", slices, in);
  }
  return fields;
}

}  // namespace gemmd
