#include <grpcpp/impl/codegen/proto_buffer_reader.h>

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "client/message_stream.h"
#include "client/row_parts.h"
#include "client/transfer.h"
#include "client/wire_bytes.h"
#include "gemmd/v1/matrix.pb.h"
#include "google/protobuf/wire_format_lite.h"

namespace gemmd::client {
namespace {

static_assert(std::endian::native == std::endian::little);

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

absl::Status Malformed(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the server's download is malformed: ", what));
}

// Takes the chunks of a download, in order, straight from the network's slices
// to their rows.
class RowWriter {
 public:
  explicit RowWriter(const MutableMatrixView& to)
      : to_(to),
        missing_(sizeof(float) * static_cast<uint64_t>(to.rows) * to.cols) {}

  uint64_t missing() const { return missing_; }

  absl::Status TakeMessage(grpc::ByteBuffer* message);

 private:
  absl::Status TakeHeader(CodedInputStream* in);
  absl::Status TakeChunk(CodedInputStream* in);

  const MutableMatrixView to_;
  uint64_t missing_;     // bytes
  int64_t row_ = 0;      // where the next byte goes
  int64_t in_row_ = 0;   // likewise, bytes from the row's begin
  bool headed_ = false;  // the header has come
};

absl::Status RowWriter::TakeHeader(CodedInputStream* in) {
  v1::DownloadHeader header;
  const CodedInputStream::Limit limit = in->ReadLengthAndPushLimit();
  if (!header.ParseFromCodedStream(in)) return Malformed("its header");
  in->PopLimit(limit);
  headed_ = true;
  if (header.cols() == static_cast<uint64_t>(to_.cols) &&
      header.row_count() == static_cast<uint64_t>(to_.rows)) {
    return absl::OkStatus();
  }
  return Malformed(absl::StrCat("it announces ", header.row_count(), " x ",
                                header.cols(), "; wanted is ", to_.rows, " x ",
                                to_.cols));
}

absl::Status RowWriter::TakeChunk(CodedInputStream* in) {
  uint32_t length = 0;
  if (!in->ReadVarint32(&length)) return Malformed("a chunk has no length");
  if (!headed_) return Malformed("a chunk before the header");
  if (length > missing_) return Malformed("more bytes than announced");
  missing_ -= length;
  const int64_t row_bytes = static_cast<int64_t>(sizeof(float)) * to_.cols;
  const int64_t ld =
      to_.leading_dimension == 0 ? to_.cols : to_.leading_dimension;
  while (length > 0) {
    // Packed rows are one long row.
    const int64_t room = ld == to_.cols ? int64_t{length} : row_bytes - in_row_;
    const int take = static_cast<int>(std::min(int64_t{length}, room));
    char* const out = reinterpret_cast<char*>(to_.data + row_ * ld) + in_row_;
    if (!in->ReadRaw(out, take)) return Malformed("a chunk is cut off");
    length -= take;
    in_row_ += take;
    if (ld != to_.cols && in_row_ == row_bytes) {
      ++row_;
      in_row_ = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status RowWriter::TakeMessage(grpc::ByteBuffer* message) {
  using Response = v1::DownloadMatrixResponse;
  grpc::ProtoBufferReader reader(message);
  CodedInputStream in(&reader);
  while (const uint32_t tag = in.ReadTag()) {
    absl::Status status;
    if (tag == Tag(Response::kHeaderFieldNumber, kLengthType)) {
      status = TakeHeader(&in);
    } else if (tag == Tag(Response::kChunkFieldNumber, kLengthType)) {
      status = TakeChunk(&in);
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      status = Malformed("not a message");
    }
    if (!status.ok()) return status;
  }
  return in.ConsumedEntireMessage() ? absl::OkStatus()
                                    : Malformed("not a message");
}

absl::Status DownloadPart(const Session& session, const std::string& id,
                          int64_t first_row, const MutableMatrixView& to,
                          Operation* operation) {
  v1::DownloadMatrixRequest request;
  request.set_matrix_id(id);
  request.set_first_row(first_row);
  request.set_row_count(to.rows);
  MessageStream stream(session, "/gemmd.v1.GemmService/DownloadMatrix",
                       operation);
  if (stream.Write(Serialize(request))) stream.WritesDone();
  RowWriter writer(to);
  grpc::ByteBuffer message;
  while (stream.Read(&message)) {
    absl::Status status = writer.TakeMessage(&message);
    if (!status.ok()) return status;
  }
  absl::Status status = stream.Finish();
  if (status.ok() && writer.missing() > 0) {
    return Malformed(
        absl::StrCat("it ended ", writer.missing(), " bytes before its end"));
  }
  return status;
}

}  // namespace

absl::Status Download(const Session& session, const std::string& id,
                      int64_t first_row, const MutableMatrixView& to,
                      Operation* operation) {
  const int64_t ld = to.leading_dimension == 0 ? to.cols : to.leading_dimension;
  return ForEachPart(
      to.rows, sizeof(float) * to.cols, session.connections().size(),
      [&](int64_t first, int64_t count) {
        const MutableMatrixView part = {to.data + first * ld, count, to.cols,
                                        to.leading_dimension};
        return WithRetries(session.options().retry, operation, [&] {
          return DownloadPart(session, id, first_row + first, part, operation);
        });
      });
}

}  // namespace gemmd::client
