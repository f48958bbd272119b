// One call of SgemmStream, and the products on it.

#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/connections.h"
#include "client/identity.h"
#include "client/operation.h"

namespace gemmd::client {

// A product on its way.
struct StreamItem {
  grpc::Slice request;   // a gemmd.v1.SgemmRequest, in bytes of its own
  Operation* operation;  // how long it may take; outlives the item

  // Called once, with a gemmd.v1.SgemmResponse or an error.
  absl::AnyInvocable<void(absl::StatusOr<grpc::ByteBuffer>)> done;
};

// One whose `done` is to be called, where no lock is held.
struct EndedItem {
  StreamItem item;
  absl::StatusOr<grpc::ByteBuffer> result;
};

// Driven by its owner, who takes its tags out of the completion queue:
//
//   Take(tag's event) ... until gone()
//
// At most one message each way is with gRPC. Thread-compatible: its owner
// locks.
class StreamCall {
 public:
  enum Event { kStarted, kWritten, kRead, kFinished };
  // What the completion queue returns; null stands for the owner's alarm.
  struct Tag {
    StreamCall* call;
    Event event;
  };

  // On `connection`, one of `connections`. Takes items until `until`.
  StreamCall(const Connections& connections,
             std::shared_ptr<Connection> connection, const Identity& identity,
             grpc::CompletionQueue* queue, absl::Time until);

  bool takes_items() const { return !sending_done_ && absl::Now() < until_; }
  // No event will come any more.
  bool gone() const { return finished_ && events_ == 0; }

  void Add(uint64_t sequence, StreamItem item);
  bool Cancel(uint64_t sequence);

  // No items after those that are there.
  void SendNoMore();
  void TryCancel() { context_.TryCancel(); }

  void Take(Event event, bool ok, std::vector<EndedItem>* ended);

  // Ends the items that are over at `now`, and the call's sending if that is;
  // when there will be something to end next.
  void EndLate(absl::Time now, std::vector<EndedItem>* ended);
  absl::Time next_deadline() const;

 private:
  struct Pending {
    StreamItem item;
    absl::Time deadline;
    bool cancelled = false;
  };
  using Items = std::unordered_map<uint64_t, Pending>;

  void* Expect(Event event) {
    ++events_;
    return &tags_[event];
  }
  void Write();
  void TakeMessage(std::vector<EndedItem>* ended);
  void Finish();
  void End(Items::iterator item, absl::StatusOr<grpc::ByteBuffer> result,
           std::vector<EndedItem>* ended);

  const Connections& connections_;
  const std::shared_ptr<Connection> connection_;
  const absl::Time until_;
  Tag tags_[4] = {
      {this, kStarted}, {this, kWritten}, {this, kRead}, {this, kFinished}};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  Items items_;                  // without answers
  std::deque<uint64_t> unsent_;  // of items_, or cancelled since
  int events_ = 0;               // that will come
  bool started_ = false;
  bool writing_ = false;
  bool broken_ = false;        // nothing can be written any more
  bool sending_done_ = false;  // no more items are taken
  bool told_done_ = false;     // and the server knows
  bool finishing_ = false;
  bool finished_ = false;
};

}  // namespace gemmd::client
