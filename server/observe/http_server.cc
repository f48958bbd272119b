#include "server/observe/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd {
namespace {

using Clock = std::chrono::steady_clock;

// Past these one that has not sent its request yet makes room, the oldest
// first: whoever holds connections open must not keep a probe out.
constexpr size_t kMaxConnections = 256;
// At a time, so that those that are there are not forgotten over new ones.
constexpr int kMaxAccepts = 64;
// From the first byte to the last: a client that does not send or read is
// dropped.
constexpr auto kTimeout = std::chrono::seconds(5);
// How often deadlines are looked at while somebody is connected.
constexpr int kTickMs = 250;
// How long an answer under way may still take once the server stops.
constexpr auto kStopTimeout = std::chrono::seconds(1);
// Of a request's line and headers; nothing of them but the first line is used.
constexpr size_t kMaxRequestBytes = 16384;

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

std::string Serialize(const HttpResponse& response, bool head) {
  return absl::StrCat("HTTP/1.1 ", response.status, " ",
                      ReasonPhrase(response.status),
                      "\r\nContent-Type: ", response.content_type,
                      "\r\nContent-Length: ", response.body.size(),
                      "\r\nCache-Control: no-store"
                      "\r\nX-Content-Type-Options: nosniff"
                      "\r\nConnection: close\r\n\r\n",
                      head ? "" : response.body);
}

// A request until its client knows the answer: closing a socket with bytes that
// nobody read would take back what was sent.
struct Connection {
  enum class State { kReading, kAnswering, kAnswered, kClosed };
  int fd;
  Clock::time_point deadline;
  State state = State::kReading;
  std::string request;
  std::string answer;  // what is left to send
};

// One thread and poll(): a client costs a few bytes, however slow it is.
class PollHttpServer : public HttpServer {
  using State = Connection::State;

 public:
  explicit PollHttpServer(std::map<std::string, Handler> handlers)
      : handlers_(std::move(handlers)) {}

  ~PollHttpServer() override {
    if (thread_.joinable()) {
      const uint64_t one = 1;
      (void)!write(stop_fd_, &one, sizeof(one));
      thread_.join();
    }
    if (listen_fd_ >= 0) close(listen_fd_);
    if (stop_fd_ >= 0) close(stop_fd_);
  }

  absl::Status Listen(const std::string& address) {
    if (const char* reason = Bind(address); reason != nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen for HTTP on ", address, ": ",
          absl::AsciiStrToLower(reason),
          errno == EADDRINUSE
              ? "; stop what uses it, or name another address with "
                "--http-listen (port 0 picks a free one)"
              : "; name an address of this machine with --http-listen"));
    }
    stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  // Null, or why not.
  const char* Bind(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    const std::string port = address.substr(colon + 1);
    if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    if (error != 0) {
      errno = 0;
      return gai_strerror(error);
    }
    const absl::Cleanup free_found = [found] { freeaddrinfo(found); };

    listen_fd_ =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listen_fd_ < 0) return strerror(errno);
    // A restart need not wait for the connections of the process before.
    const int on = 1;
    setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listen_fd_, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(listen_fd_, SOMAXCONN) != 0) {
      return strerror(errno);
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof(bound);
    getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&bound), &length);
    // The port is at the same place for IPv4 and IPv6.
    port_ = ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
    return nullptr;
  }

  void Run() {
    bool stopping = false;
    while (!stopping || !connections_.empty()) {
      const bool accepts = !stopping && can_accept_ && HasRoom();
      std::vector<pollfd> polled = {{stopping ? -1 : stop_fd_, POLLIN, 0},
                                    {accepts ? listen_fd_ : -1, POLLIN, 0}};
      for (const Connection& c : connections_) {
        const bool sends = c.state == State::kAnswering;
        polled.push_back(
            {c.fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0});
      }
      const bool waits = connections_.empty() && can_accept_;
      poll(polled.data(), polled.size(), waits ? -1 : kTickMs);

      for (size_t i = 0; i < connections_.size(); ++i) {
        if (polled[i + 2].revents != 0) Advance(&connections_[i]);
      }
      if (polled[0].revents != 0) {
        stopping = true;
        HurryAll();
      }
      can_accept_ = true;
      if (polled[1].revents != 0) Accept();
      DropFinished(stopping);
    }
  }

  bool HasRoom() const {
    return connections_.size() < kMaxConnections || OldestSilent().has_value();
  }

  // Of those that have not sent a whole request.
  std::optional<size_t> OldestSilent() const {
    for (size_t i = 0; i < connections_.size(); ++i) {
      if (connections_[i].state == State::kReading) return i;
    }
    return std::nullopt;
  }

  void Accept() {
    for (int i = 0; i < kMaxAccepts && HasRoom(); ++i) {
      const int fd =
          accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        // Without a descriptor to be had, poll would return at once for ever.
        can_accept_ = errno == EAGAIN || errno == EWOULDBLOCK;
        return;
      }
      if (connections_.size() >= kMaxConnections) {
        const auto oldest = connections_.begin() + *OldestSilent();
        close(oldest->fd);
        connections_.erase(oldest);
      }
      connections_.push_back({.fd = fd, .deadline = Clock::now() + kTimeout});
    }
  }

  void HurryAll() {
    const Clock::time_point latest = Clock::now() + kStopTimeout;
    for (Connection& c : connections_) {
      c.deadline = std::min(c.deadline, latest);
    }
  }

  // Reads what has come or sends what fits.
  void Advance(Connection* c) {
    if (c->state != State::kAnswering) {
      char bytes[4096];
      const ssize_t count = recv(c->fd, bytes, sizeof(bytes), 0);
      if (count == 0 || (count < 0 && errno != EAGAIN)) {
        c->state = State::kClosed;
      }
      if (count <= 0 || c->state == State::kAnswered) return;
      c->request.append(bytes, count);
      const bool whole = absl::StrContains(c->request, "\r\n\r\n");
      if (!whole && c->request.size() <= kMaxRequestBytes) return;
      c->state = State::kAnswering;
      c->answer = Answer(whole ? c->request : "");
    }
    const ssize_t sent =
        send(c->fd, c->answer.data(), c->answer.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN) c->state = State::kClosed;
      return;
    }
    c->answer.erase(0, sent);
    if (c->answer.empty()) {
      shutdown(c->fd, SHUT_WR);
      c->state = State::kAnswered;
    }
  }

  // While stopping, only an answer under way is waited for.
  void DropFinished(bool stopping) {
    const Clock::time_point now = Clock::now();
    std::erase_if(connections_, [&](const Connection& c) {
      const bool finished = c.state == State::kClosed || now >= c.deadline ||
                            (stopping && c.state != State::kAnswering);
      if (finished) close(c.fd);
      return finished;
    });
  }

  // `request` is the line and the headers; empty if there was no end to them.
  std::string Answer(absl::string_view request) const {
    const absl::string_view line = request.substr(0, request.find("\r\n"));
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) {
      return Serialize({.status = 400, .body = "this port speaks HTTP/1.1\n"},
                       /*head=*/false);
    }
    return Serialize(Respond(words[0], words[1].substr(0, words[1].find('?'))),
                     words[0] == "HEAD");
  }

  HttpResponse Respond(absl::string_view method, absl::string_view path) const {
    if (method != "GET" && method != "HEAD") {
      return {.status = 405, .body = "only GET and HEAD are answered here\n"};
    }
    const auto handler = handlers_.find(std::string(path));
    if (handler == handlers_.end()) {
      std::string body = "no such page; there are:";
      for (const auto& [known, unused] : handlers_) {
        absl::StrAppend(&body, " ", known);
      }
      return {.status = 404, .body = body + "\n"};
    }
    return handler->second();
  }

  // Constant after Listen.
  const std::map<std::string, Handler> handlers_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;
  int port_ = 0;
  std::thread thread_;

  // Of thread_ alone.
  std::vector<Connection> connections_;
  bool can_accept_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    absl::string_view address, std::map<std::string, Handler> handlers) {
  auto server = std::make_unique<PollHttpServer>(std::move(handlers));
  const absl::Status status = server->Listen(std::string(address));
  if (!status.ok()) return status;
  return server;
}

}  // namespace gemmd
