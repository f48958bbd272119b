#include "server/store/request_log.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/mutex.h"

namespace gemmd {
namespace {

// Of one client, and of all: about 10 MB.
constexpr size_t kMaxClientIds = 1024;
constexpr size_t kMaxIds = size_t{1} << 16;

// An id stands for a request to one matrix; neither holds a NUL.
std::string JoinIds(absl::string_view matrix_id, absl::string_view request_id) {
  std::string joined(matrix_id);
  joined.push_back('\0');
  joined.append(request_id.data(), request_id.size());
  return joined;
}

// The ids that have been applied, the oldest of a client forgotten first, and
// past kMaxIds those of the client that has been quiet for longest.
//
// Thread-compatible.
class AppliedIds {
 public:
  bool Contains(absl::string_view client, const std::string& id) const {
    const auto found = by_client_.find(client);
    return found != by_client_.end() && found->second->ids.contains(id);
  }

  void Add(absl::string_view client, const std::string& id) {
    auto found = by_client_.find(client);
    if (found == by_client_.end()) {
      clients_.push_back({std::string(client), {}, {}});
      found = by_client_.emplace(client, std::prev(clients_.end())).first;
    }
    Client& entry = *found->second;
    clients_.splice(clients_.end(), clients_, found->second);
    if (!entry.ids.insert(id).second) return;
    entry.order.push_back(id);
    ++size_;
    if (entry.order.size() > kMaxClientIds) {
      entry.ids.erase(entry.order.front());
      entry.order.pop_front();
      --size_;
    }
    while (size_ > kMaxIds) {
      size_ -= clients_.front().order.size();
      by_client_.erase(clients_.front().client);
      clients_.pop_front();
    }
  }

 private:
  struct Client {
    std::string client;
    std::deque<std::string> order;  // oldest first
    absl::flat_hash_set<std::string> ids;
  };
  std::list<Client> clients_;  // quiet for longest first
  std::map<std::string, std::list<Client>::iterator, std::less<>> by_client_;
  size_t size_ = 0;
};

class TurnLog : public RequestLog {
 public:
  uint64_t Begin(absl::string_view client, absl::string_view request_id,
                 absl::string_view matrix_id,
                 absl::AnyInvocable<void(Seen) &&> turn) override {
    const Key key(client, matrix_id);
    uint64_t number;
    {
      MutexLock lock(&mu_);
      number = ++last_number_;
      queues_[key].waiting.push_back(
          {number, std::string(request_id), std::move(turn)});
    }
    GiveTurns(key);
    return number;
  }

  // A queue with one that waits is never empty of others: one runs, or turns
  // are being given. Whoever ends that finds the queue as it is then.
  bool Withdraw(absl::string_view client, absl::string_view matrix_id,
                uint64_t number) override {
    Waiting withdrawn;  // destroyed where no lock is held
    MutexLock lock(&mu_);
    const auto found = queues_.find(Key(client, matrix_id));
    if (found == queues_.end()) return false;
    std::deque<Waiting>& waiting = found->second.waiting;
    const auto at =
        std::find_if(waiting.begin(), waiting.end(),
                     [=](const Waiting& x) { return x.number == number; });
    if (at == waiting.end()) return false;
    withdrawn = std::move(*at);
    waiting.erase(at);
    return true;
  }

  void End(absl::string_view client, absl::string_view request_id,
           absl::string_view matrix_id, bool applied) override {
    const Key key(client, matrix_id);
    {
      MutexLock lock(&mu_);
      if (applied && !request_id.empty()) {
        applied_.Add(client, JoinIds(matrix_id, request_id));
      }
      queues_[key].running = false;
    }
    GiveTurns(key);
  }

 private:
  using Key = std::pair<std::string, std::string>;  // client, matrix
  struct Waiting {
    uint64_t number = 0;
    std::string request_id;
    absl::AnyInvocable<void(Seen) &&> turn;
  };
  struct Queue {
    bool running = false;  // a kNew has not ended
    bool giving = false;   // a thread is in GiveTurns
    std::deque<Waiting> waiting;
  };

  // Gives turns until one is a kNew that runs on. A turn that ends at once, in
  // this thread or another, finds us here and leaves the next to us: so turns
  // do not nest, however many there are.
  void GiveTurns(const Key& key) {
    while (true) {
      Waiting next;
      Seen seen = Seen::kNew;
      {
        MutexLock lock(&mu_);
        const auto found = queues_.find(key);
        if (found == queues_.end() || found->second.giving) return;
        Queue& queue = found->second;
        if (queue.running) return;
        if (queue.waiting.empty()) {
          queues_.erase(found);
          return;
        }
        next = std::move(queue.waiting.front());
        queue.waiting.pop_front();
        if (!next.request_id.empty() &&
            applied_.Contains(key.first,
                              JoinIds(key.second, next.request_id))) {
          seen = Seen::kDone;
        }
        queue.running = seen == Seen::kNew;
        queue.giving = true;
      }
      std::move(next.turn)(seen);
      MutexLock lock(&mu_);
      queues_[key].giving = false;
    }
  }

  Mutex mu_;
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  AppliedIds applied_ ABSL_GUARDED_BY(mu_);
  // Of matrices that somebody runs or waits for.
  std::map<Key, Queue> queues_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<RequestLog> RequestLog::Create() {
  return std::make_unique<TurnLog>();
}

}  // namespace gemmd
