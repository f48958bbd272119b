#include "server/rpc/download_call.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gemmd/v1/matrix.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/field_checks.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/refusals.h"
#include "server/rpc/staged_slice.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {
namespace {

using google::protobuf::io::CodedOutputStream;
using grpc::ByteBuffer;

// Chunks of one stream between the device and gRPC, at most: enough to have one
// being copied while another is sent, whatever the client's pace.
constexpr int kWindow = 4;

// A DownloadMatrixResponse whose chunk is `bytes`, where they lie.
ByteBuffer ChunkMessage(grpc::Slice bytes) {
  constexpr uint32_t kTag =
      WireTag(v1::DownloadMatrixResponse::kChunkFieldNumber, WireType::kLength);
  uint8_t head[5 + 10];
  uint8_t* out = CodedOutputStream::WriteVarint32ToArray(kTag, head);
  out = CodedOutputStream::WriteVarint64ToArray(bytes.size(), out);
  const grpc::Slice slices[2] = {grpc::Slice(head, out - head),
                                 std::move(bytes)};
  return ByteBuffer(slices, 2);
}

// Chunks are copied out of the device ahead of their turn, and written in
// order, one at a time.
class DownloadCall final : public Call {
 public:
  DownloadCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kDownloadMatrix) {
    environment->gemm_service.RequestDownloadMatrix(
        &context(), &request_, &writer_, queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new DownloadCall(&environment(), queue()); }
  size_t RequestBytes() const override { return request_.Length(); }
  void Begin() override;
  void Cancelled(const absl::Status& why) override { Stop(why); }

  absl::Status Prepare();
  void WriteHeader();
  void OnWritten(bool ok);
  void OnCopied(size_t offset, absl::Status status, StagingBuffer chunk);
  void Stop(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // Does what can be done now: begins copies, writes what is next, ends.
  void GoOn() ABSL_LOCKS_EXCLUDED(mu_);
  bool BeginCopy() ABSL_LOCKS_EXCLUDED(mu_);
  void WriteOrEnd() ABSL_LOCKS_EXCLUDED(mu_);

  ByteBuffer request_;
  grpc::ServerAsyncWriter<ByteBuffer> writer_{&context()};
  MethodCompletion<DownloadCall> written_{this, &DownloadCall::OnWritten};

  // Set by Begin.
  std::shared_ptr<const StoredMatrix> matrix_;
  MatrixRows rows_;
  size_t begin_ = 0;  // of the rows, in bytes of the matrix
  size_t end_of_rows_ = 0;
  Admission::Ticket ticket_;

  Mutex mu_;
  size_t next_copy_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of the matrix, both
  size_t next_write_ ABSL_GUARDED_BY(mu_) = 0;
  int copying_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<size_t, StagingBuffer> copied_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  size_t written_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

void DownloadCall::Begin() {
  if (absl::Status status = Prepare(); !status.ok()) return Stop(status);
  WriteHeader();
  GoOn();
}

absl::Status DownloadCall::Prepare() {
  const RpcDependencies& dependencies = environment().dependencies;
  if (environment().refusing.load()) return DrainingError();
  if (dependencies.store == nullptr) return NoMatricesError();
  const absl::StatusOr<std::string> client = Admit(Role::kCompute);
  if (!client.ok()) return client.status();
  const auto request = FromRaw<v1::DownloadMatrixRequest>(&request_);
  if (!request.ok()) return request.status();
  const std::string& id = request->matrix_id();
  absl::Status status = CheckMatrixId("matrix_id", {id, id.size()});
  if (!status.ok()) return status;
  auto matrix = dependencies.store->Find(*client, id);
  if (!matrix.ok()) return matrix.status();
  matrix_ = *std::move(matrix);
  const auto rows = CheckRowRange("", matrix_->rows(), request->first_row(),
                                  request->row_count());
  if (!rows.ok()) return rows.status();
  rows_ = *rows;
  const size_t row_bytes = matrix_->cols() * sizeof(float);
  begin_ = rows_.first * row_bytes;
  end_of_rows_ = begin_ + rows_.count * row_bytes;
  auto ticket = dependencies.admission->Admit(
      *client, std::min(end_of_rows_ - begin_, kWindow * kMaxChunkBytes));
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  MutexLock lock(&mu_);
  next_copy_ = next_write_ = begin_;
  return absl::OkStatus();
}

void DownloadCall::WriteHeader() {
  v1::DownloadMatrixResponse response;
  v1::DownloadHeader& header = *response.mutable_header();
  header.set_rows(matrix_->rows());
  header.set_cols(matrix_->cols());
  header.set_first_row(rows_.first);
  header.set_row_count(rows_.count);
  const ByteBuffer message = ToRaw(response);
  {
    MutexLock lock(&mu_);
    writing_ = true;
    written_bytes_ += message.Length();
  }
  ExpectEvent();
  writer_.Write(message, written_.tag());
}

void DownloadCall::GoOn() {
  while (BeginCopy()) {
  }
  WriteOrEnd();
}

// False: there is none to begin now.
bool DownloadCall::BeginCopy() {
  const RpcDependencies& dependencies = environment().dependencies;
  size_t offset;
  StagingBuffer chunk;
  {
    MutexLock lock(&mu_);
    const int under_way = copying_ + static_cast<int>(copied_.size());
    if (!error_.ok() || next_copy_ == end_of_rows_ || under_way >= kWindow) {
      return false;
    }
    offset = next_copy_;
    auto staged = dependencies.backend->staging().Allocate(
        std::min(kMaxChunkBytes, end_of_rows_ - offset));
    if (!staged.ok()) {
      // A later event tries again, if one will come.
      if (under_way == 0 && !writing_) error_ = staged.status();
      return false;
    }
    chunk = *std::move(staged);
    next_copy_ += chunk.size();
    ++copying_;
  }
  ExpectEvent();
  dependencies.store->Read(
      matrix_, offset, std::move(chunk),
      [this, offset](absl::Status status, StagingBuffer filled) {
        OnCopied(offset, std::move(status), std::move(filled));
      });
  return true;
}

void DownloadCall::OnCopied(size_t offset, absl::Status status,
                            StagingBuffer chunk) {
  {
    MutexLock lock(&mu_);
    --copying_;
    if (status.ok()) {
      copied_.emplace(offset, std::move(chunk));
    } else {
      error_.Update(status);
    }
  }
  GoOn();
  EventOver();
}

void DownloadCall::WriteOrEnd() {
  StagingBuffer chunk;
  absl::Status status;
  size_t answer_bytes;
  {
    MutexLock lock(&mu_);
    if (writing_ || ended_) return;
    if (error_.ok() && next_write_ < end_of_rows_) {
      auto next = copied_.extract(next_write_);
      if (next.empty()) return;
      chunk = std::move(next.mapped());
      next_write_ += chunk.size();
      writing_ = true;
    } else {
      if (copying_ > 0) return;
      copied_.clear();
      ended_ = true;
      status = error_;
    }
    written_bytes_ += chunk.size();
    answer_bytes = written_bytes_;
  }
  if (chunk.size() == 0) {
    ticket_ = Admission::Ticket();
    writer_.Finish(End(status, answer_bytes), finish_tag());
    return;
  }
  ExpectEvent();
  writer_.Write(ChunkMessage(StagedSlice(std::move(chunk), Admission::Ticket(),
                                         &environment().answers)),
                written_.tag());
}

void DownloadCall::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) error_.Update(absl::CancelledError("the client is gone"));
  }
  GoOn();
  EventOver();
}

void DownloadCall::Stop(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    error_.Update(why);
  }
  WriteOrEnd();
}

}  // namespace

void OfferDownloadCalls(CallEnvironment* environment,
                        grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 4;
  for (int i = 0; i < kOffered; ++i) new DownloadCall(environment, queue);
}

}  // namespace gemmd
