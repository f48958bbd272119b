// The products of one SgemmStream between the reading of their messages and the
// writing of their answers, and how many more there may be.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/monotonic_time.h"
#include "server/rpc/sgemm_product.h"

namespace gemmd {

// One product, from the reading of its message until its answer is there.
struct StreamItem {
  explicit StreamItem(CallEnvironment* environment) : product(environment) {}

  grpc::ByteBuffer message;  // until the product is started
  size_t bytes = 0;          // of the message
  MonotonicTime arrival;
  uint64_t sequence = 0;
  bool started = false;  // guarded as the StreamItems that it is in
  SgemmProduct product;
};
using StreamItemPtr = std::shared_ptr<StreamItem>;

// The bookkeeping of a stream. An item is added when it was read; it may be
// parked, and is taken up again when another has been answered; its answer
// takes its place, waits for its turn to be written, and goes when it was.
//
// Thread-compatible: the stream locks.
class StreamItems {
 public:
  // At most `max_items` at a time, and of `max_bytes` of messages and answers;
  // one larger item may be there alone.
  StreamItems(int max_items, size_t max_bytes)
      : max_items_(max_items), max_bytes_(max_bytes) {}

  // There is room for one more; not while one is parked.
  bool HasRoom() const;
  bool empty() const { return items_.empty() && answers_.empty(); }

  void Add(StreamItemPtr item);

  // Takes an item out that will have no answer.
  void Discard(StreamItem* item);

  // Notes that the server holds something for the item, from now on until its
  // answer was written; or that it does not after all.
  void SetStarted(StreamItem* item, bool started);

  // Keeps an item until another one's answer was written; false, and does
  // nothing, if the server holds nothing for any of them.
  bool Park(StreamItemPtr item);

  // The next one of the parked; null: there is none.
  StreamItemPtr TakeParked();
  std::deque<StreamItemPtr> TakeAllParked();

  // The answer takes the item's place. The item is returned, to be destroyed
  // where no lock is held.
  StreamItemPtr Answer(StreamItem* item, grpc::ByteBuffer message);

  // Whether an answer waits; the first one's message, taken out; and that it
  // was written: its place is free.
  bool HasAnswer() const { return !answers_.empty(); }
  grpc::ByteBuffer TakeMessage();
  void Written();

  // Forgets the answers but the first `kept` ones.
  void DropAnswers(size_t kept);

  // Those that have no answer yet.
  std::vector<StreamItemPtr> unanswered() const;

 private:
  // What becomes free when an answer was written.
  struct Outgoing {
    grpc::ByteBuffer message;
    size_t bytes;
    bool started;
  };

  void Free(const Outgoing& answer);

  const int max_items_;
  const size_t max_bytes_;
  absl::flat_hash_map<StreamItem*, StreamItemPtr> items_;
  std::deque<StreamItemPtr> parked_;  // in items_, too
  std::deque<Outgoing> answers_;
  size_t bytes_ = 0;
  int started_ = 0;
};

}  // namespace gemmd
