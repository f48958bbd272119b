#include "client/stream_wire.h"

#include <array>
#include <string>
#include <utility>

#include "client/wire_bytes.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/protobuf/wire_format_lite.h"
#include "google/rpc/status.pb.h"
#include "proto/status.h"

namespace gemmd::client {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// False: it is no such message.
bool Read(const grpc::ByteBuffer& message, StreamAnswer* answer) {
  using Response = v1::SgemmStreamResponse;
  grpc::Slice bytes;
  if (!message.DumpToSingleSlice(&bytes).ok()) return false;
  CodedInputStream in(bytes.begin(), static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    if (tag == Tag(Response::kSequenceFieldNumber, kVarintType)) {
      if (!in.ReadVarint64(&answer->sequence)) return false;
    } else if (tag == Tag(Response::kResponseFieldNumber, kLengthType)) {
      if (!in.ReadVarint32(&length)) return false;
      const auto begin = static_cast<size_t>(in.CurrentPosition());
      if (!in.Skip(static_cast<int>(length))) return false;
      const grpc::Slice response = bytes.sub(begin, begin + length);
      answer->result = grpc::ByteBuffer(&response, 1);
    } else if (tag == Tag(Response::kErrorFieldNumber, kLengthType)) {
      google::rpc::Status error;
      const CodedInputStream::Limit limit = in.ReadLengthAndPushLimit();
      if (!error.ParseFromCodedStream(&in)) return false;
      in.PopLimit(limit);
      absl::Status status = FromRpcStatus(error);
      answer->result = status.ok() ? absl::InternalError("an error that is OK")
                                   : std::move(status);
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

grpc::ByteBuffer EncodeStreamItem(uint64_t sequence,
                                  const grpc::Slice& request) {
  std::string head;
  AppendTag(v1::SgemmStreamRequest::kSequenceFieldNumber, kVarintType, &head);
  AppendVarint(sequence, &head);
  AppendTag(v1::SgemmStreamRequest::kRequestFieldNumber, kLengthType, &head);
  AppendVarint(request.size(), &head);
  const std::array<grpc::Slice, 2> slices = {grpc::Slice(head), request};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<StreamAnswer> DecodeStreamAnswer(
    const grpc::ByteBuffer& message) {
  StreamAnswer answer = {
      .result = absl::InternalError("the server's answer has no result")};
  if (Read(message, &answer)) return answer;
  return absl::InternalError("the server's stream is malformed");
}

}  // namespace gemmd::client
