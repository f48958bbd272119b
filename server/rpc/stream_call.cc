#include "server/rpc/stream_call.h"

#include <grpcpp/support/async_stream.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/sgemm.pb.h"
#include "proto/error_details.h"
#include "proto/status.h"
#include "server/rpc/call.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/client_status.h"
#include "server/rpc/message_slices.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/refusals.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_encoder.h"
#include "server/rpc/sgemm_task.h"
#include "server/rpc/stream_items.h"
#include "server/rpc/trace_context.h"

namespace gemmd {
namespace {

using grpc::ByteBuffer;

ByteBuffer ErrorMessage(uint64_t sequence, const absl::Status& status) {
  v1::SgemmStreamResponse response;
  response.set_sequence(sequence);
  *response.mutable_error() = ToRpcStatus(ForClient(status));
  return ToRaw(response);
}

// The server's admission, not the request, is in the way.
bool MayFitLater(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && RetryDelay(status).has_value();
}

// Messages are read one after the other as long as there is room: fewer than
// stream_items products, and less than stream_bytes of messages and answers,
// between their reading and the writing of their answers. So neither what a
// client sends ahead nor the answers that it does not read can grow. A product
// that finds the server's own budget taken waits for one of this stream to be
// answered, and nothing is read meanwhile; without one it fails.
class StreamCall final : public Call, private OpenStream {
 public:
  StreamCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kSgemmStream) {
    environment->gemm_service.RequestSgemmStream(&context(), &stream_, queue,
                                                 queue, arrival_tag());
  }
  ~StreamCall() override { environment().streams.Remove(this); }

 private:
  void Renew() override { new StreamCall(&environment(), queue()); }
  void Begin() override;
  void Cancelled(const absl::Status& why) override;
  void Drain() override;

  void OnRead(bool ok);
  void OnWritten(bool ok);

  // On the polling thread or a worker.
  void Handle(StreamItemPtr item);
  // OK: the item will be answered, and may be gone.
  absl::Status Start(StreamItem& item, const SgemmStreamFields& fields,
                     std::span<const ByteSlice> slices);
  StreamItemPtr NextParked() ABSL_LOCKS_EXCLUDED(mu_);
  bool Park(const StreamItemPtr& item) ABSL_LOCKS_EXCLUDED(mu_);

  void Discard(StreamItem* item) ABSL_LOCKS_EXCLUDED(mu_);
  void OnAnswer(StreamItem* item, absl::StatusOr<EncodedAnswer> answer);
  void AnswerError(StreamItem* item, const absl::Status& status);
  void LogItem(const StreamItem& item, const absl::Status& status);
  void QueueAnswer(StreamItem* item, const ByteBuffer& message)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the stream with an error once what has been started is answered; with
  // `drop`, answers are not sent any more.
  void Stop(const absl::Status& why, bool drop) ABSL_LOCKS_EXCLUDED(mu_);
  // Does what can be done now: writes, reads, ends.
  void GoOn() ABSL_LOCKS_EXCLUDED(mu_);

  ByteBuffer incoming_;
  grpc::ServerAsyncReaderWriter<ByteBuffer, ByteBuffer> stream_{&context()};
  MethodCompletion<StreamCall> read_{this, &StreamCall::OnRead};
  MethodCompletion<StreamCall> written_{this, &StreamCall::OnWritten};
  bool local_ = false;  // set by Begin

  Mutex mu_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool no_more_ ABSL_GUARDED_BY(mu_) = false;  // the client has sent its last
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool dropping_ ABSL_GUARDED_BY(mu_) = false;  // answers reach nobody
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // not OK: nothing more is begun
  StreamItems items_ ABSL_GUARDED_BY(mu_){environment().options.stream_items,
                                          environment().options.stream_bytes};
  size_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

void StreamCall::Begin() {
  environment().streams.Add(this);
  local_ = environment().regions != nullptr && IsLocal(context());
  const absl::Status admitted = Admit(Role::kCompute).status();
  if (admitted.ok()) {
    GoOn();
  } else {
    Stop(admitted, /*drop=*/false);
  }
}

void StreamCall::OnRead(bool ok) {
  // A stream may outlive what let its client in.
  if (absl::Status still = ok ? AdmitAgain(Role::kCompute) : absl::OkStatus();
      !still.ok()) {
    Stop(still, /*drop=*/false);
  }
  StreamItemPtr item;
  {
    MutexLock lock(&mu_);
    reading_ = false;
    if (!ok) no_more_ = true;
    if (ok && error_.ok()) {
      item = std::make_shared<StreamItem>(&environment());
      item->message.Swap(&incoming_);
      item->bytes = item->message.Length();
      item->arrival = MonotonicClock::now();
      items_.Add(item);
    }
  }
  if (item == nullptr) {
    GoOn();
    return EventOver();  // the read's
  }
  MessageIsThere(item->bytes);
  GoOn();  // the next message can come while this one is copied
  if (item->bytes > environment().options.polling_thread_bytes) {
    environment().workers.Post([this, item] { Handle(item); });
  } else {
    Handle(std::move(item));
  }
}

void StreamCall::Handle(StreamItemPtr item) {
  while (item != nullptr) {
    const MessageSlices message(item->message);
    absl::StatusOr<SgemmStreamFields> fields =
        DecodeSgemmStream(message.slices());
    if (!fields.ok()) {
      Discard(item.get());  // whose answer it would be cannot be told
      Stop(fields.status(), /*drop=*/false);
      break;
    }
    item->sequence = fields->sequence;
    absl::Status status = Start(*item, *fields, message.slices());
    if (MayFitLater(status)) {
      if (Park(item)) break;
      // The last of the stream's others may have been answered just now.
      status = Start(*item, *fields, message.slices());
    }
    if (status.ok()) {
      item->message.Clear();
    } else {
      AnswerError(item.get(), status);
    }
    item = NextParked();
  }
  GoOn();
  EventOver();  // the read's, or the write's that made room
}

absl::Status StreamCall::Start(StreamItem& item,
                               const SgemmStreamFields& fields,
                               std::span<const ByteSlice> slices) {
  CallEnvironment& env = environment();
  env.decoding.Add();  // before `refusing` is looked at: see RefuseNew
  const absl::Cleanup decoded = [&] { env.decoding.Remove(); };
  if (env.refusing.load(std::memory_order_relaxed)) return DrainingError();
  if (!fields.request.has_value()) {
    return InvalidFieldError("request", "request is missing");
  }
  if (item.bytes > env.options.max_inline_bytes) {
    return LimitError(
        "--max-inline-bytes", env.options.max_inline_bytes,
        absl::StrCat("the request has ", item.bytes, " bytes; at most ",
                     env.options.max_inline_bytes, " (--max-inline-bytes)"));
  }
  {
    MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    items_.SetStarted(&item, true);
  }
  env.inflight.Add(1);
  absl::Status status = item.product.Start(
      {.client = client(),
       .local = local_,
       .arrival = item.arrival,
       .deadline = Deadline(),
       .loop = loop()},
      *fields.request, slices,
      [this, &item](auto answer) { OnAnswer(&item, std::move(answer)); });
  if (status.ok()) return status;
  env.inflight.Add(-1);
  MutexLock lock(&mu_);
  items_.SetStarted(&item, false);
  return status;
}

bool StreamCall::Park(const StreamItemPtr& item) {
  MutexLock lock(&mu_);
  return error_.ok() && items_.Park(item);
}

StreamItemPtr StreamCall::NextParked() {
  MutexLock lock(&mu_);
  return items_.TakeParked();
}

void StreamCall::Discard(StreamItem* item) {
  MutexLock lock(&mu_);
  items_.Discard(item);
}

void StreamCall::OnAnswer(StreamItem* item,
                          absl::StatusOr<EncodedAnswer> answer) {
  environment().inflight.Add(-1);
  if (!answer.ok()) return AnswerError(item, answer.status());
  LogItem(*item, absl::OkStatus());
  QueueAnswer(item, ToStreamMessage(item->sequence, *answer));
}

void StreamCall::AnswerError(StreamItem* item, const absl::Status& status) {
  if (!item->started) {
    CountShed(status, *environment().dependencies.metrics);
  }
  LogItem(*item, status);
  QueueAnswer(item, ErrorMessage(item->sequence, status));
}

void StreamCall::LogItem(const StreamItem& item, const absl::Status& status) {
  if (!IsRequestLogged(status)) return;
  EndedRequest request{
      .method = MethodName(Method::kSgemmStream),
      .client = NameInLog(client()),
      .seconds = Seconds(MonotonicClock::now() - item.arrival)};
  item.product.Describe(&request);
  AddTraceContext(context(), &request);
  LogRequest(request, status);
}

void StreamCall::QueueAnswer(StreamItem* item, const ByteBuffer& message) {
  StreamItemPtr owner;  // goes when the lock is not held any more
  {
    MutexLock lock(&mu_);
    owner = items_.Answer(item, message);
    if (dropping_) items_.DropAnswers(writing_ ? 1 : 0);
  }
  GoOn();
}

void StreamCall::OnWritten(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    items_.Written();
    if (!ok) {
      error_.Update(absl::CancelledError("the client is gone"));
      dropping_ = true;
      items_.DropAnswers(0);
    }
  }
  GoOn();
  StreamItemPtr parked = NextParked();
  if (parked != nullptr &&
      parked->bytes > environment().options.polling_thread_bytes) {
    environment().workers.Post([this, parked] { Handle(parked); });
  } else {
    Handle(std::move(parked));
  }
}

void StreamCall::Cancelled(const absl::Status& why) {
  Stop(why, /*drop=*/true);
  std::vector<StreamItemPtr> items;
  {
    MutexLock lock(&mu_);
    items = items_.unanswered();
  }
  for (const StreamItemPtr& item : items) item->product.Cancel(why);
}

// A client that has sent all of its products is waited for.
void StreamCall::Drain() {
  {
    MutexLock lock(&mu_);
    if (no_more_) return;
  }
  Stop(DrainingError(), /*drop=*/false);
}

void StreamCall::Stop(const absl::Status& why, bool drop) {
  std::deque<StreamItemPtr> parked;
  {
    MutexLock lock(&mu_);
    error_.Update(why);
    dropping_ = dropping_ || drop;
    if (dropping_) items_.DropAnswers(writing_ ? 1 : 0);
    parked = items_.TakeAllParked();
  }
  for (const StreamItemPtr& item : parked) AnswerError(item.get(), why);
  GoOn();
}

void StreamCall::GoOn() {
  bool write = false, read = false, end = false;
  absl::Status status;
  ByteBuffer outgoing;
  size_t sent_bytes = 0;
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    if (!writing_ && items_.HasAnswer()) writing_ = write = true;
    if (!reading_ && !no_more_ && error_.ok() && items_.HasRoom()) {
      reading_ = read = true;
    }
    if (items_.empty() && (no_more_ || !error_.ok())) {
      ended_ = end = true;
      status = error_;
      sent_bytes = sent_bytes_;
    }
    if (write) {
      outgoing = items_.TakeMessage();
      sent_bytes_ += outgoing.Length();
      ExpectEvent();
    }
    if (read) ExpectEvent();
  }
  if (write) stream_.Write(outgoing, written_.tag());
  if (read) stream_.Read(&incoming_, read_.tag());
  if (end) stream_.Finish(End(status, sent_bytes), finish_tag());
}

}  // namespace

void OfferStreamCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 4;
  for (int i = 0; i < kOffered; ++i) new StreamCall(environment, queue);
}

}  // namespace gemmd
