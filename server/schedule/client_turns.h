// Whose turn it is among the clients that wait.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "server/monotonic_time.h"

namespace gemmd {

// Fair queueing: the turn is the client's that has been served least, whatever
// the number of its requests and connections. A client that comes (back) with
// nothing waiting starts where the one is whose turn it last was: it neither
// saves up for the time it was away nor pays for it. So a client that has just
// come has its turn after at most one of each client that waited before it.
// (Start-time fair queueing; Goyal, Vin, Cheng, IEEE/ACM ToN 5(5), 1997,
// doi:10.1109/90.649569; with the charge made when a request is served, so that
// one that is cancelled costs nothing.)
//
// A client's tasks stand in lines, one for each set of devices that can take
// them, oldest first; all lines of a client count as one client.
//
// Pure. All calls are O(log n) in the tasks that wait, but that Add and Remove
// of a client's only task also forget clients that are not here any more.
// Thread-compatible.
class ClientTurns {
 public:
  struct Client;     // valid while it has a task here
  struct Waiter {};  // the owner derives its own from it

  explicit ClientTurns(int lines) : due_(lines), later_(lines) {}

  // A task at the end of its client's line. `sequence` (1 or more) grows from
  // task to task over all clients; from `due` on it may have a turn, and not
  // before the task ahead of it.
  Client* Add(absl::string_view name, int line, uint64_t sequence,
              MonotonicTime due, Waiter* task);

  // Takes a task out and charges its client for what it got: 0 for nothing.
  void Remove(Client* client, int line, uint64_t sequence, double cost);

  // The oldest task of the client whose turn it is, of those that stand in one
  // of two lines and are due; of two clients served alike, that of the older
  // task. Null if there is none.
  Waiter* First(std::array<int, 2> lines, MonotonicTime now);

  // The client of First's answer takes its turn.
  void TakeTurn(const Client* client);

  // Tasks up to that sequence are due, whatever was said of them.
  void MakeDue(uint64_t up_to);

  // Since when First may have something of this line: kAlways if it may now,
  // kNever if never.
  MonotonicTime NextDue(int line) const;

  bool empty(int line) const {
    return due_[line].empty() && later_[line].empty();
  }

  // Clients that are remembered for what they got, though they have nothing
  // here; past this number those with the smallest lead are forgotten.
  static constexpr size_t kMaxAbsent = 1024;
  size_t absent() const { return absent_.size(); }

 private:
  struct Waiting {
    MonotonicTime due;
    Waiter* task;
  };
  struct Line {
    std::map<uint64_t, Waiting> tasks;  // by sequence
    // How it stands in due_ or later_, if it does.
    enum class Place { kNone, kDue, kLater } place = Place::kNone;
    std::pair<double, uint64_t> due_key;
    std::pair<MonotonicTime, uint64_t> later_key;
  };

 public:
  struct Client {
   private:
    friend class ClientTurns;
    std::string name;
    double served = 0;
    int tasks = 0;
    std::vector<Line> lines;
  };

 private:
  // Puts a line where it belongs after a change of its front or its client.
  void Place(Client* client, int line);
  void Unplace(Client* client, int line);
  void PromoteDue(int line, MonotonicTime now);
  void ForgetAbsent();

  absl::flat_hash_map<std::string, std::unique_ptr<Client>> clients_;
  // Lines whose oldest task is due, by what their client got, then by its age;
  // the others by when it will be.
  std::vector<std::map<std::pair<double, uint64_t>, Client*>> due_;
  std::vector<std::map<std::pair<MonotonicTime, uint64_t>, Client*>> later_;
  std::set<std::pair<double, Client*>> absent_;
  double turn_ = 0;  // what the client had got that took the last turn
  int tasks_ = 0;
  uint64_t due_up_to_ = 0;  // sequence
};

}  // namespace gemmd
