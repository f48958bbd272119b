// Small products on one stream after another.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/connections.h"
#include "client/identity.h"
#include "client/stream_call.h"

namespace gemmd::client {

// Sends products on a stream, one after another, without waiting for answers,
// and takes the answers in whatever order they come. A stream that ends takes
// its products with it, as errors; the next product opens another. None is open
// for longer than its products and `max_age`, idle or not: a connection that
// the server wants to end, by its age, waits for its streams, and a new token
// goes with a new stream.
//
// A stream has no deadlines and no cancellations of its own: here a product
// that is over time or cancelled is only not waited for any more, and the
// server may still run it. So products on it are small (Product::IsSmall), and
// hold none of their caller's memory.
//
// Thread-safe. One thread of its own, which calls back.
class ProductStream {
 public:
  static constexpr absl::Duration kMaxAge = absl::Seconds(20);

  // On the connection of that number. Both outlive it.
  ProductStream(const Connections* connections, int connection,
                const Identity* identity, absl::Duration max_age = kMaxAge);
  // After the last item is done.
  ~ProductStream();
  ProductStream(const ProductStream&) = delete;
  ProductStream& operator=(const ProductStream&) = delete;

  // A number for an item that is to come.
  uint64_t NewSequence();

  void Begin(uint64_t sequence, StreamItem item);

  // Ends it soon with CANCELLED, if it is there.
  void Cancel(uint64_t sequence);

 private:
  void Run();
  StreamCall* Current();                        // with mu_ held
  void EndWhatIsLate(std::vector<EndedItem>*);  // with mu_ held
  void WakeAt(absl::Time when);                 // with mu_ held

  const Connections* const connections_;
  const int connection_;
  const Identity* const identity_;
  const absl::Duration max_age_;
  std::atomic<uint64_t> next_sequence_ = 1;  // a counter, orders nothing
  grpc::CompletionQueue queue_;

  std::mutex mu_;
  std::condition_variable call_gone_;
  std::list<std::unique_ptr<StreamCall>> calls_;  // guarded by mu_
  std::optional<grpc::Alarm> alarm_;              // guarded by mu_
  absl::Time wake_at_ = absl::InfiniteFuture();   // guarded by mu_

  std::thread thread_;
};

}  // namespace gemmd::client
