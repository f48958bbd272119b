#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/message_stream.h"
#include "client/packed_rows.h"
#include "client/row_parts.h"
#include "client/sgemm_check.h"
#include "client/transfer.h"
#include "client/wire_bytes.h"
#include "gemmd/v1/matrix.pb.h"
#include "google/rpc/error_details.pb.h"

namespace gemmd::client {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kChunk = kChunkBytes / sizeof(float);  // in numbers

// The message that holds `count` numbers from `first` on: a slice of the
// caller's memory where they lie together, else a copy.
grpc::ByteBuffer ChunkMessage(const MatrixView& x, size_t first, size_t count,
                              LentMemory* lent) {
  const size_t bytes = sizeof(float) * count;
  std::string head;
  AppendTag(v1::UploadMatrixRequest::kChunkFieldNumber, kLengthType, &head);
  AppendVarint(bytes, &head);
  const float* numbers = InPlace(x, first, count);
  grpc::Slice slices[2] = {grpc::Slice(head), {}};
  if (numbers != nullptr) {
    slices[1] = lent->Lend(numbers, bytes);
  } else {
    slices[1] = grpc::Slice(bytes);
    CopyPacked(x, first, count, const_cast<uint8_t*>(slices[1].begin()));
  }
  return grpc::ByteBuffer(slices, 2);
}

v1::UploadMatrixRequest Header(const MatrixView& source,
                               const UploadTarget& target, int64_t first_row,
                               int64_t row_count) {
  v1::UploadMatrixRequest request;
  v1::UploadHeader* header = request.mutable_header();
  header->set_rows(source.rows);
  header->set_cols(source.cols);
  header->set_matrix_id(target.id);
  if (target.ttl.has_value()) {
    *header->mutable_ttl() = DurationToProto(*target.ttl);
  }
  header->set_digest(target.digest);
  header->set_first_row(first_row);
  header->set_row_count(row_count);
  return request;
}

// One stream's rows.
absl::Status UploadPart(const Session& session, const MatrixView& source,
                        const UploadTarget& target, int64_t first_row,
                        int64_t row_count, Operation* operation,
                        std::atomic<bool>* complete) {
  LentMemory lent;
  absl::Status status;
  {
    MessageStream stream(session, "/gemmd.v1.GemmService/UploadMatrix",
                         operation);
    // The server may answer before it has all: it holds these numbers already.
    stream.BeginRead();
    bool going =
        stream.Write(Serialize(Header(source, target, first_row, row_count)));
    const size_t end = static_cast<size_t>(first_row + row_count) * source.cols;
    for (size_t at = static_cast<size_t>(first_row) * source.cols;
         at < end && going && !stream.answered(); at += kChunk) {
      going = stream.Write(
          ChunkMessage(source, at, std::min(kChunk, end - at), &lent));
    }
    if (going) stream.WritesDone();
    grpc::ByteBuffer answer;
    const bool answered = stream.Read(&answer);
    status = stream.Finish();
    v1::UploadMatrixResponse response;
    if (status.ok() && answered) status = Parse(answer, &response);
    if (response.complete()) *complete = true;
  }
  lent.WaitUntilAllReturned();
  return status;
}

// The server's words for rows that another stream carries, or has carried.
bool RowsOverlap(const absl::Status& status) {
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  google::rpc::BadRequest detail;
  return payload.has_value() && detail.ParseFromString(std::string(*payload)) &&
         detail.field_violations_size() == 1 &&
         detail.field_violations(0).field() == "header.first_row";
}

using PartUpload = std::function<absl::Status(int64_t first, int64_t count)>;

// The rows that a broken stream has left are in the way until the server has
// noticed its end.
absl::Status WithPartRetries(const RetryPolicy& retry, Operation* operation,
                             const PartUpload& upload, int64_t first,
                             int64_t count) {
  absl::Status broken;
  return WithRetries(retry, operation, [&] {
    absl::Status status = upload(first, count);
    if (absl::IsUnavailable(status)) broken = status;
    return !broken.ok() && RowsOverlap(status) ? broken : status;
  });
}

}  // namespace

absl::Status Upload(const Session& session, const MatrixView& source,
                    const UploadTarget& target, Operation* operation) {
  const RetryPolicy& retry = session.options().retry;
  std::atomic<bool> complete = false;
  const PartUpload part = [&](int64_t first, int64_t count) {
    return UploadPart(session, source, target, first, count, operation,
                      &complete);
  };
  const auto all = [&](const PartUpload& upload) -> absl::Status {
    absl::Status status = ForEachPart(source.rows, sizeof(float) * source.cols,
                                      session.connections().size(), upload);
    if (!status.ok() || complete) return status;
    return absl::InternalError(
        "the server took every row and does not call the matrix complete");
  };
  if (!target.minted) {
    return all([&](int64_t first, int64_t count) {
      return WithPartRetries(retry, operation, part, first, count);
    });
  }
  bool again = false;
  return WithRetries(retry, operation, [&]() -> absl::Status {
    // What came before the error would now be in the way.
    if (std::exchange(again, true)) {
      absl::Status status = DeleteMatrix(session, target.id, operation);
      if (!status.ok() && !absl::IsNotFound(status)) return status;
    }
    return all(part);
  });
}

absl::Status DeleteMatrix(const Session& session, const std::string& id,
                          Operation* operation) {
  v1::DeleteMatrixRequest request;
  request.set_matrix_id(id);
  v1::DeleteMatrixResponse response;
  return session.CallAndWait("/gemmd.v1.GemmService/DeleteMatrix", request,
                             &response, operation);
}

}  // namespace gemmd::client
