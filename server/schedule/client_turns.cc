#include "server/schedule/client_turns.h"

#include <algorithm>

namespace gemmd {

ClientTurns::Client* ClientTurns::Add(absl::string_view name, int line,
                                      uint64_t sequence, MonotonicTime due,
                                      Waiter* task) {
  std::unique_ptr<Client>& client = clients_[name];
  if (client == nullptr) {
    client = std::make_unique<Client>();
    client->name = std::string(name);
    client->lines.resize(due_.size());
  }
  if (client->tasks == 0) {
    absent_.erase({client->served, client.get()});
    client->served = std::max(client->served, turn_);
  }
  ++client->tasks;
  ++tasks_;
  auto& tasks = client->lines[line].tasks;
  tasks.emplace_hint(tasks.end(), sequence, Waiting{due, task});
  if (tasks.size() == 1) Place(client.get(), line);
  return client.get();
}

void ClientTurns::Remove(Client* client, int line, uint64_t sequence,
                         double cost) {
  auto& tasks = client->lines[line].tasks;
  const bool was_front = tasks.begin()->first == sequence;
  tasks.erase(sequence);
  --client->tasks;
  --tasks_;
  client->served += cost;
  if (cost > 0) {
    for (int i = 0; i < static_cast<int>(client->lines.size()); ++i) {
      Place(client, i);
    }
  } else if (was_front) {
    Place(client, line);
  }
  if (client->tasks > 0) return;
  absent_.emplace(client->served, client);
  ForgetAbsent();
}

ClientTurns::Waiter* ClientTurns::First(std::array<int, 2> lines,
                                        MonotonicTime now) {
  const std::pair<double, uint64_t>* least = nullptr;
  Waiter* first = nullptr;
  for (const int line : lines) {
    PromoteDue(line, now);
    if (due_[line].empty()) continue;
    const auto& [key, client] = *due_[line].begin();
    if (least != nullptr && *least < key) continue;
    least = &key;
    first = client->lines[line].tasks.begin()->second.task;
  }
  return first;
}

void ClientTurns::TakeTurn(const Client* client) {
  turn_ = std::max(turn_, client->served);
  ForgetAbsent();
}

void ClientTurns::MakeDue(uint64_t up_to) {
  due_up_to_ = std::max(due_up_to_, up_to);
  for (int line = 0; line < static_cast<int>(later_.size()); ++line) {
    PromoteDue(line, kNever);
  }
}

MonotonicTime ClientTurns::NextDue(int line) const {
  if (!due_[line].empty()) return kAlways;
  return later_[line].empty() ? kNever : later_[line].begin()->first.first;
}

void ClientTurns::Place(Client* client, int line) {
  Unplace(client, line);
  Line& l = client->lines[line];
  if (l.tasks.empty()) return;
  const auto& [sequence, front] = *l.tasks.begin();
  if (sequence <= due_up_to_ || front.due == kAlways) {
    l.place = Line::Place::kDue;
    l.due_key = {client->served, sequence};
    due_[line].emplace(l.due_key, client);
  } else {
    l.place = Line::Place::kLater;
    l.later_key = {front.due, sequence};
    later_[line].emplace(l.later_key, client);
  }
}

void ClientTurns::Unplace(Client* client, int line) {
  Line& l = client->lines[line];
  if (l.place == Line::Place::kDue) due_[line].erase(l.due_key);
  if (l.place == Line::Place::kLater) later_[line].erase(l.later_key);
  l.place = Line::Place::kNone;
}

void ClientTurns::PromoteDue(int line, MonotonicTime now) {
  auto& later = later_[line];
  while (!later.empty() && later.begin()->first.first <= now) {
    const auto [key, client] = *later.begin();
    later.erase(later.begin());
    Line& l = client->lines[line];
    l.place = Line::Place::kDue;
    l.due_key = {client->served, key.second};
    due_[line].emplace(l.due_key, client);
  }
}

void ClientTurns::ForgetAbsent() {
  if (tasks_ == 0) {  // nobody waits for anybody
    absent_.clear();
    clients_.clear();
    turn_ = 0;
    return;
  }
  while (!absent_.empty() &&
         (absent_.begin()->first <= turn_ || absent_.size() > kMaxAbsent)) {
    const Client* const client = absent_.begin()->second;
    absent_.erase(absent_.begin());
    clients_.erase(client->name);
  }
}

}  // namespace gemmd
