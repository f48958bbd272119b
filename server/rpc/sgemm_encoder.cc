#include "server/rpc/sgemm_encoder.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <utility>

#include "gemmd/v1/sgemm.pb.h"
#include "server/rpc/precision_wire.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {
namespace {

using google::protobuf::io::CodedOutputStream;

// Keeps a product and its share of the budget until gRPC has sent it.
struct AnswerOwner {
  AnswerOwner(StagingBuffer output, Admission::Ticket ticket,
              LiveCount* answers)
      : output(std::move(output)), ticket(std::move(ticket)), answers(answers) {
    answers->Add();
  }
  ~AnswerOwner() {
    // The count goes last: when it is 0 the pool may go.
    output.Reset();
    ticket = Admission::Ticket();
    answers->Remove();
  }

  static void Destroy(void* owner) { delete static_cast<AnswerOwner*>(owner); }

  StagingBuffer output;
  Admission::Ticket ticket;
  LiveCount* const answers;
};

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

grpc::ByteBuffer EncodeSgemmAnswer(const GemmShape& shape,
                                   const KernelInfo& kernel, TaskResult result,
                                   Admission::Ticket ticket,
                                   MonotonicTime encode_start,
                                   LiveCount* answers) {
  v1::SgemmResponse fields;
  fields.set_rows(shape.m);
  fields.set_cols(shape.n);
  v1::Execution& execution = *fields.mutable_execution();
  execution.set_kernel(kernel.name);
  execution.set_device(result.device);
  execution.set_precision(ToWire(kernel.precision));
  execution.set_batch_size(result.batch_size);
  execution.set_decode_seconds(result.seconds.decode);
  execution.set_queue_seconds(result.seconds.queue);
  execution.set_h2d_seconds(result.seconds.h2d);
  execution.set_compute_seconds(result.seconds.compute);
  execution.set_d2h_seconds(result.seconds.d2h);
  execution.set_encode_seconds(Seconds(MonotonicClock::now() - encode_start));

  const size_t c_bytes = result.output.size();
  grpc::Slice slices[2] = {EncodeHeader(fields, c_bytes), grpc::Slice()};
  if (c_bytes == 0) return grpc::ByteBuffer(slices, 1);
  void* const c = result.output.data();
  slices[1] = grpc::Slice(
      c, c_bytes, &AnswerOwner::Destroy,
      new AnswerOwner(std::move(result.output), std::move(ticket), answers));
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace gemmd
