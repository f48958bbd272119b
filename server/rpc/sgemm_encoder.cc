#include "server/rpc/sgemm_encoder.h"

#include <google/protobuf/io/coded_stream.h>

#include <string>
#include <utility>

#include "gemmd/v1/sgemm.pb.h"
#include "server/rpc/precision_wire.h"
#include "server/rpc/staged_slice.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {
namespace {

using google::protobuf::io::CodedOutputStream;

// The small fields, then tag and length of `c`: the product itself follows.
grpc::Slice EncodeHeader(const v1::SgemmResponse& fields, size_t c_bytes) {
  constexpr uint32_t kTag =
      WireTag(v1::SgemmResponse::kCFieldNumber, WireType::kLength);
  const size_t fields_bytes = fields.ByteSizeLong();
  const size_t c_header_bytes =
      c_bytes == 0 ? 0
                   : CodedOutputStream::VarintSize32(kTag) +
                         CodedOutputStream::VarintSize64(c_bytes);
  grpc::Slice slice(fields_bytes + c_header_bytes);
  auto* out = const_cast<uint8_t*>(slice.begin());
  out = fields.SerializeWithCachedSizesToArray(out);
  if (c_bytes > 0) {
    out = CodedOutputStream::WriteVarint32ToArray(kTag, out);
    CodedOutputStream::WriteVarint64ToArray(c_bytes, out);
  }
  return slice;
}

}  // namespace

EncodedAnswer EncodeSgemmAnswer(const SgemmAnswerFields& answer,
                                TaskResult result, Admission::Ticket ticket,
                                MonotonicTime encode_start,
                                LiveCount* answers) {
  v1::SgemmResponse fields;
  fields.set_rows(answer.shape.m);
  fields.set_cols(answer.shape.n);
  if (!answer.matrix_id.empty()) {
    fields.set_matrix_id(std::string(answer.matrix_id));
  }
  v1::Execution& execution = *fields.mutable_execution();
  execution.set_kernel(answer.kernel.name);
  execution.set_device(result.device);
  execution.set_precision(ToWire(answer.kernel.precision));
  execution.set_batch_size(result.batch_size);
  execution.set_replayed(answer.replayed);
  execution.set_decode_seconds(result.seconds.decode);
  execution.set_queue_seconds(result.seconds.queue);
  execution.set_h2d_seconds(result.seconds.h2d);
  execution.set_compute_seconds(result.seconds.compute);
  execution.set_d2h_seconds(result.seconds.d2h);
  execution.set_encode_seconds(Seconds(MonotonicClock::now() - encode_start));

  const size_t c_bytes = result.output.size();
  EncodedAnswer encoded;
  encoded.fields = EncodeHeader(fields, c_bytes);
  if (c_bytes > 0) {
    encoded.c =
        StagedSlice(std::move(result.output), std::move(ticket), answers);
  }
  return encoded;
}

grpc::ByteBuffer ToMessage(const EncodedAnswer& answer) {
  const grpc::Slice slices[2] = {answer.fields, answer.c};
  return grpc::ByteBuffer(slices, answer.c.size() == 0 ? 1 : 2);
}

grpc::ByteBuffer ToStreamMessage(uint64_t sequence,
                                 const EncodedAnswer& answer) {
  using Message = v1::SgemmStreamResponse;
  constexpr uint32_t kSequenceTag =
      WireTag(Message::kSequenceFieldNumber, WireType::kVarint);
  constexpr uint32_t kResponseTag =
      WireTag(Message::kResponseFieldNumber, WireType::kLength);
  constexpr size_t kMostBytes = 5 + 10 + 5 + 10;
  uint8_t head[kMostBytes];
  uint8_t* out = head;
  out = CodedOutputStream::WriteVarint32ToArray(kSequenceTag, out);
  out = CodedOutputStream::WriteVarint64ToArray(sequence, out);
  out = CodedOutputStream::WriteVarint32ToArray(kResponseTag, out);
  out = CodedOutputStream::WriteVarint64ToArray(
      answer.fields.size() + answer.c.size(), out);
  const grpc::Slice slices[3] = {grpc::Slice(head, out - head), answer.fields,
                                 answer.c};
  return grpc::ByteBuffer(slices, answer.c.size() == 0 ? 2 : 3);
}

}  // namespace gemmd
