// A stream of messages, used by one thread that waits.

#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/status/status.h"
#include "client/operation.h"
#include "client/session.h"

namespace gemmd::client {

// One streaming call over one of the session's connections, within the time of
// an operation and ended by its cancellation. A blocked call polls a queue of
// its own on the caller's thread. At most one message each way is on its way
// from or to here; what the network buffers is gRPC's to bound.
//
// Thread-compatible; both outlive the stream.
class MessageStream {
 public:
  MessageStream(const Session& session, const char* method,
                Operation* operation);
  ~MessageStream();  // ends the call, if it is not finished
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // Sends a message. False: the call has ended, Finish tells how.
  bool Write(const grpc::ByteBuffer& message);
  void WritesDone();

  // Takes the next message. False: there are no more.
  bool Read(grpc::ByteBuffer* message);

  // Begins to wait for a message that may come while messages are written;
  // answered() tells whether it has, and the next Read returns it.
  void BeginRead();
  bool answered() const { return read_ == State::kDone; }

  // The call's end, in the words of Connections::Explain. All messages have
  // been read.
  absl::Status Finish();

 private:
  // Of what a tag stands for.
  enum class State { kIdle, kPending, kDone, kFailed };

  void Begin(State* state) { *state = State::kPending; }
  bool WaitFor(State* state);

  const Session& session_;
  Operation* const operation_;
  const std::shared_ptr<Connection> connection_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  State start_ = State::kIdle;
  State write_ = State::kIdle;
  State read_ = State::kIdle;
  State finish_ = State::kIdle;
  grpc::ByteBuffer message_;
  grpc::Status status_;
  std::optional<Operation::Step> step_;
};

}  // namespace gemmd::client
