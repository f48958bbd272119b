#include "server/rpc/upload_call.h"

#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/matrix.pb.h"
#include "proto/error_details.h"
#include "server/rpc/call.h"
#include "server/rpc/field_checks.h"
#include "server/rpc/message_slices.h"
#include "server/rpc/operand_copy.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/refusals.h"
#include "server/rpc/upload_decoder.h"
#include "server/rpc/upload_validation.h"

namespace gemmd {
namespace {

using grpc::ByteBuffer;

// Chunks of one stream on their way from staging memory to the device, at most.
// While they are, nothing more is read.
constexpr int kWindow = 4;

// Reads a message, handles it, reads on; the copies to the device end
// meanwhile, on threads of their own. One message is handled at a time, so the
// upload is nobody else's then.
class UploadCall final : public Call, private OpenStream {
 public:
  UploadCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kUploadMatrix) {
    environment->gemm_service.RequestUploadMatrix(&context(), &reader_, queue,
                                                  queue, arrival_tag());
  }
  ~UploadCall() override { environment().streams.Remove(this); }

 private:
  void Renew() override { new UploadCall(&environment(), queue()); }
  void Begin() override;
  void Cancelled(const absl::Status& why) override { Stop(why); }
  void Drain() override { Stop(DrainingError()); }

  void OnRead(bool ok);
  void Handle(bool end_of_stream);
  absl::Status HandleMessage();
  absl::Status HandleHeader(const UploadHeaderFields& header);
  absl::Status HandleChunk(const MessageSlices& message,
                           const ByteRange& chunk);
  absl::Status HandleEnd();
  void OnCopied(const absl::Status& status);
  void OnResult(absl::StatusOr<MatrixUpload::Result> result);

  // Ends the call with an error, once what is under way is over.
  void Stop(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Does what can be done now: reads on, or ends the call.
  void GoOn() ABSL_LOCKS_EXCLUDED(mu_);

  ByteBuffer message_;
  grpc::ServerAsyncReader<ByteBuffer, ByteBuffer> reader_{&context()};
  MethodCompletion<UploadCall> read_{this, &UploadCall::OnRead};

  // Of whoever handles a message; when none is, of the end.
  std::unique_ptr<MatrixUpload> upload_;
  bool hashes_ = false;  // the store takes a millisecond for a chunk

  Mutex mu_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool handling_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // all is sent, awaits `done`
  int copying_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // How it ends, once that is known.
  std::optional<absl::StatusOr<MatrixUpload::Result>> end_ ABSL_GUARDED_BY(mu_);
  Admission::Ticket ticket_;
};

void UploadCall::Begin() {
  environment().streams.Add(this);
  absl::Status status = Admit(Role::kCompute).status();
  if (status.ok() && environment().dependencies.store == nullptr) {
    status = NoMatricesError();
  }
  if (status.ok()) {
    GoOn();
  } else {
    Stop(status);
  }
}

void UploadCall::OnRead(bool ok) {
  {
    MutexLock lock(&mu_);
    reading_ = false;
    // What comes after the end is of no interest.
    handling_ = !end_.has_value();
    if (!handling_) ok = false;
  }
  if (ok) MessageIsThere(message_.Length());
  if (ok && hashes_) {
    environment().workers.Post([this] { Handle(/*end_of_stream=*/false); });
  } else {
    Handle(/*end_of_stream=*/!ok);
  }
}

void UploadCall::Handle(bool end_of_stream) {
  bool handling;
  {
    MutexLock lock(&mu_);
    handling = handling_;
  }
  if (handling) {
    const absl::Status status = end_of_stream ? HandleEnd() : HandleMessage();
    message_.Clear();
    MutexLock lock(&mu_);
    handling_ = false;
    if (!status.ok() && !end_.has_value()) end_ = status;
  }
  GoOn();
  EventOver();  // the read's
}

absl::Status UploadCall::HandleMessage() {
  const MessageSlices message(message_);
  absl::StatusOr<UploadFields> fields = DecodeUpload(message.slices());
  if (!fields.ok()) return fields.status();
  if (const auto* header = std::get_if<UploadHeaderFields>(&*fields)) {
    return HandleHeader(*header);
  }
  if (const auto* chunk = std::get_if<ByteRange>(&*fields)) {
    return HandleChunk(message, *chunk);
  }
  return InvalidFieldError(
      "request", "a message has neither header nor chunk; one is wanted");
}

absl::Status UploadCall::HandleHeader(const UploadHeaderFields& header) {
  if (upload_ != nullptr) {
    return InvalidFieldError("header",
                             "a second header came; chunks are wanted");
  }
  const RpcDependencies& dependencies = environment().dependencies;
  absl::StatusOr<UploadSpec> spec = PlanUpload(header);
  if (!spec.ok()) return spec.status();
  spec->client = client();
  hashes_ = !spec->digest.empty();
  const uint64_t bytes = static_cast<uint64_t>(spec->row_count) *
                         static_cast<uint64_t>(spec->cols) * sizeof(float);
  absl::StatusOr<Admission::Ticket> ticket = dependencies.admission->Admit(
      spec->client, std::min<uint64_t>(bytes, kWindow * kMaxChunkBytes));
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  absl::StatusOr<std::unique_ptr<MatrixUpload>> upload =
      dependencies.store->BeginUpload(*spec);
  if (!upload.ok()) return upload.status();
  upload_ = *std::move(upload);
  return upload_->already_held() ? HandleEnd() : absl::OkStatus();
}

absl::Status UploadCall::HandleChunk(const MessageSlices& message,
                                     const ByteRange& chunk) {
  if (upload_ == nullptr) {
    return InvalidFieldError("header",
                             "a chunk came first; the header is wanted");
  }
  if (chunk.size > kMaxChunkBytes) {
    return InvalidFieldError(
        "chunk", absl::StrCat("a chunk has ", chunk.size, " bytes; at most ",
                              kMaxChunkBytes));
  }
  if (chunk.size > upload_->missing_bytes()) {
    return InvalidFieldError(
        "chunk", absl::StrCat("a chunk has ", chunk.size, " bytes; ",
                              upload_->missing_bytes(),
                              " are missing of the stream's rows"));
  }
  if (chunk.size == 0) return absl::OkStatus();
  absl::StatusOr<StagingBuffer> staged =
      environment().dependencies.backend->staging().Allocate(chunk.size);
  if (!staged.ok()) return staged.status();
  CopyBytes(message.slices(), chunk, staged->data());
  {
    MutexLock lock(&mu_);
    ++copying_;
  }
  ExpectEvent();
  absl::Status status =
      upload_->Append(*std::move(staged),
                      [this](const absl::Status& copied) { OnCopied(copied); });
  if (status.ok()) return status;
  {
    MutexLock lock(&mu_);
    --copying_;
  }
  EventOver();  // of the one that will not come; the handling's is still there
  return status;
}

// The client has sent all it wants to, or nothing more is wanted.
absl::Status UploadCall::HandleEnd() {
  if (upload_ == nullptr) {
    return InvalidFieldError("header",
                             "the stream ended before its header came");
  }
  if (!upload_->already_held() && upload_->missing_bytes() > 0) {
    return InvalidFieldError(
        "chunk",
        absl::StrCat("the stream ended with ", upload_->missing_bytes(),
                     " bytes of its rows missing"));
  }
  {
    MutexLock lock(&mu_);
    finishing_ = true;
  }
  ExpectEvent();
  upload_->Finish([this](absl::StatusOr<MatrixUpload::Result> result) {
    OnResult(std::move(result));
  });
  return absl::OkStatus();
}

void UploadCall::OnCopied(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    --copying_;
    if (!status.ok() && !end_.has_value()) end_ = status;
  }
  GoOn();
  EventOver();
}

void UploadCall::OnResult(absl::StatusOr<MatrixUpload::Result> result) {
  {
    MutexLock lock(&mu_);
    finishing_ = false;
    end_ = std::move(result);
  }
  GoOn();
  EventOver();
}

void UploadCall::Stop(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (!end_.has_value() && !finishing_) end_ = why;
  }
  GoOn();
}

void UploadCall::GoOn() {
  absl::StatusOr<MatrixUpload::Result> end;
  bool ends = false;
  {
    MutexLock lock(&mu_);
    if (handling_ || ended_ || finishing_) return;
    if (!end_.has_value()) {
      if (reading_ || copying_ >= kWindow) return;
      reading_ = true;
    } else {
      if (copying_ > 0) return;
      ended_ = ends = true;
      end = *end_;
    }
  }
  if (!ends) {
    ExpectEvent();
    return reader_.Read(&message_, read_.tag());
  }
  // Before the client hears of it, so that it may begin again at once.
  upload_.reset();
  ticket_ = Admission::Ticket();
  if (!end.ok()) {
    return reader_.FinishWithError(End(end.status()), finish_tag());
  }
  v1::UploadMatrixResponse response;
  response.set_matrix_id(end->id);
  response.set_complete(end->complete);
  response.set_already_held(end->already_held);
  const ByteBuffer answer = ToRaw(response);
  reader_.Finish(answer, End(absl::OkStatus(), answer.Length()), finish_tag());
}

}  // namespace

void OfferUploadCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 4;
  for (int i = 0; i < kOffered; ++i) new UploadCall(environment, queue);
}

}  // namespace gemmd
