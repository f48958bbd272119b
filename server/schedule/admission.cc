#include "server/schedule/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {

// What a client holds.
struct Admission::Client {
  std::string name;
  size_t requests = 0;
  size_t bytes = 0;
};

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      client_(other.client_),
      bytes_(other.bytes_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    if (owner_ != nullptr) owner_->Return(client_, bytes_);
    owner_ = std::exchange(other.owner_, nullptr);
    client_ = other.client_;
    bytes_ = other.bytes_;
  }
  return *this;
}

Admission::Ticket::~Ticket() {
  if (owner_ != nullptr) owner_->Return(client_, bytes_);
}

Admission::Admission(const AdmissionOptions& options) : options_(options) {}
Admission::~Admission() = default;

absl::StatusOr<Admission::Ticket> Admission::Admit(absl::string_view client,
                                                   size_t bytes) {
  if (bytes > options_.max_bytes) {
    return LimitError(
        "--queue-max-bytes", options_.max_bytes,
        absl::StrCat("the request needs ", bytes, " bytes of memory; at most ",
                     options_.max_bytes,
                     " are there for all (--queue-max-bytes)"));
  }
  const MonotonicTime now = MonotonicClock::now();
  MutexLock lock(&mu_);
  const auto found = clients_.find(client);
  const Client nothing;
  absl::Status room =
      CheckRoom(found == clients_.end() ? nothing : *found->second, bytes);
  if (!room.ok()) return room;
  if (requests_ == 0) drain_rate_.Restart(now);
  Client* holder;
  if (found != clients_.end()) {
    holder = found->second.get();
  } else {
    auto added = std::make_unique<Client>(Client{std::string(client)});
    holder = added.get();
    clients_.emplace(client, std::move(added));
  }
  ++holder->requests;
  holder->bytes += bytes;
  ++requests_;
  bytes_ += bytes;
  return Ticket(this, holder, bytes);
}

absl::Status Admission::CheckRoom(const Client& client, size_t bytes) const {
  const size_t max_requests = static_cast<size_t>(options_.max_requests);
  const size_t free_requests = max_requests - requests_;
  const size_t free_bytes = options_.max_bytes - bytes_;
  if (free_requests == 0) {
    return Full("queue-max-requests",
                absl::StrCat("the server holds ", requests_,
                             " requests, the most it may "
                             "(--queue-max-requests)"));
  }
  if (bytes > free_bytes) {
    return Full("queue-max-bytes",
                absl::StrCat("the request needs ", bytes, " bytes; ", bytes_,
                             " of ", options_.max_bytes,
                             " are taken by requests before it "
                             "(--queue-max-bytes)"));
  }
  if (client.requests == 0) return absl::OkStatus();
  if (client.requests + 1 > kShare * free_requests) {
    return Full(
        "queue-max-requests",
        absl::StrCat("the client has ", client.requests, " requests here and ",
                     free_requests, " of ", max_requests,
                     " have room: the rest is for others "
                     "(--queue-max-requests)"));
  }
  if (client.bytes + bytes > kShare * free_bytes) {
    return Full(
        "queue-max-bytes",
        absl::StrCat("the request needs ", bytes, " bytes; the client has ",
                     client.bytes, " here and ", free_bytes, " of ",
                     options_.max_bytes,
                     " are free: the rest is for others "
                     "(--queue-max-bytes)"));
  }
  return absl::OkStatus();
}

absl::Status Admission::Full(absl::string_view flag,
                             absl::string_view message) const {
  return QuotaError(
      flag, message,
      absl::FromChrono(drain_rate_.RetryDelay(static_cast<double>(requests_))));
}

void Admission::Return(Client* client, size_t bytes) {
  const MonotonicTime now = MonotonicClock::now();
  MutexLock lock(&mu_);
  --requests_;
  bytes_ -= bytes;
  --client->requests;
  client->bytes -= bytes;
  if (client->requests == 0) clients_.erase(clients_.find(client->name));
  drain_rate_.Note(1, now);
}

int Admission::requests() const {
  MutexLock lock(&mu_);
  return static_cast<int>(requests_);
}

size_t Admission::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace gemmd
