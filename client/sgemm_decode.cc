#include <grpcpp/impl/codegen/proto_buffer_reader.h>

#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/server_info_wire.h"
#include "client/sgemm_wire.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace gemmd::client {
namespace {

static_assert(std::endian::native == std::endian::little);

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

absl::Status Malformed(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the server's answer is malformed: ", what));
}

// The field `c`, right into its place.
absl::Status ReadNumbers(CodedInputStream* in, const ProductSize& size,
                         const MutableMatrixView* c) {
  uint32_t length = 0;
  if (!in->ReadVarint32(&length)) return Malformed("c has no length");
  const uint64_t wanted = c == nullptr ? 0 : sizeof(float) * size.m * size.n;
  if (length != wanted) {
    return Malformed(absl::StrCat("c has ", length, " bytes; a product of ",
                                  size.m, " x ", size.n, " has ", wanted));
  }
  if (length == 0) return absl::OkStatus();
  const int64_t ld = c->leading_dimension == 0 ? c->cols : c->leading_dimension;
  const int64_t pieces = ld == size.n ? 1 : size.m;
  const int bytes = static_cast<int>(length / pieces);
  for (int64_t i = 0; i < pieces; ++i) {
    if (!in->ReadRaw(c->data + i * ld, bytes)) return Malformed("c is cut off");
  }
  return absl::OkStatus();
}

bool ReadExecution(CodedInputStream* in, v1::Execution* execution) {
  const CodedInputStream::Limit limit = in->ReadLengthAndPushLimit();
  const bool ok = execution->MergeFromCodedStream(in) &&
                  in->ConsumedEntireMessage() && in->BytesUntilLimit() == 0;
  in->PopLimit(limit);
  return ok;
}

SgemmExecution FromProto(const v1::Execution& from) {
  return {
      .kernel = from.kernel(),
      .device = from.device(),
      .precision = PrecisionFromProto(from.precision()),
      .batch_size = from.batch_size(),
      .decode = absl::Seconds(from.decode_seconds()),
      .queue = absl::Seconds(from.queue_seconds()),
      .h2d = absl::Seconds(from.h2d_seconds()),
      .compute = absl::Seconds(from.compute_seconds()),
      .d2h = absl::Seconds(from.d2h_seconds()),
      .encode = absl::Seconds(from.encode_seconds()),
      .replayed = from.replayed(),
  };
}

// What an answer holds besides its numbers.
struct Fields {
  v1::Execution execution;
  uint64_t rows = 0;
  uint64_t cols = 0;
  bool has_numbers = false;
};

absl::Status ReadFields(CodedInputStream* in, const ProductSize& size,
                        const MutableMatrixView* c, Fields* fields) {
  using Response = v1::SgemmResponse;
  while (const uint32_t tag = in->ReadTag()) {
    bool ok = true;
    switch (tag) {
      case Response::kExecutionFieldNumber << 3 | 2:
        ok = ReadExecution(in, &fields->execution);
        break;
      case Response::kRowsFieldNumber << 3 | 0:
        ok = in->ReadVarint64(&fields->rows);
        break;
      case Response::kColsFieldNumber << 3 | 0:
        ok = in->ReadVarint64(&fields->cols);
        break;
      case Response::kCFieldNumber << 3 | 2: {
        absl::Status status = ReadNumbers(in, size, c);
        if (!status.ok()) return status;
        fields->has_numbers = true;
        break;
      }
      default:
        ok = WireFormatLite::SkipField(in, tag);
    }
    if (!ok) return Malformed(absl::StrCat("field ", tag >> 3));
  }
  if (!in->ConsumedEntireMessage()) return Malformed("not a message");
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeSgemm(grpc::ByteBuffer* answer, const ProductSize& size,
                         const MutableMatrixView* c,
                         SgemmExecution* execution) {
  grpc::ProtoBufferReader reader(answer);
  Fields fields;
  {
    CodedInputStream in(&reader);
    absl::Status status = ReadFields(&in, size, c, &fields);
    if (!status.ok()) return status;
  }
  if (fields.rows != static_cast<uint64_t>(size.m) ||
      fields.cols != static_cast<uint64_t>(size.n)) {
    return Malformed(absl::StrCat("it is ", fields.rows, " x ", fields.cols,
                                  "; the product is ", size.m, " x ", size.n));
  }
  if (c != nullptr && !fields.has_numbers && size.m != 0 && size.n != 0) {
    return Malformed("it has no c");
  }
  *execution = FromProto(fields.execution);
  return absl::OkStatus();
}

}  // namespace gemmd::client
