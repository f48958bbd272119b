#include "server/rpc/stalled_connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

constexpr int kLooks = 10;  // in the time of the patience

bool HasRoom(int fd) {
  pollfd one = {fd, POLLOUT, 0};
  return poll(&one, 1, 0) != 0;  // also where the other side is gone
}

ino_t SocketOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

int BufferSize(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
  return bytes;
}

// The system doubles what it is given, and has a least size.
void SetBufferSize(int fd, int bytes) {
  const int half = bytes / 2;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
}

// The connection itself, whatever becomes of the descriptor meanwhile.
bool Shutdown(int fd, ino_t socket) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return false;
  const bool ended = SocketOf(own) == socket && shutdown(own, SHUT_RDWR) == 0;
  close(own);
  return ended;
}

}  // namespace

StalledConnections::StalledConnections(std::string unix_socket,
                                       MonotonicDuration patience)
    : address_{.unix_socket = std::move(unix_socket)}, patience_(patience) {}

int StalledConnections::Look(MonotonicTime now) {
  const std::vector<int> connections = FindConnections(address_);
  const std::set<int> there(connections.begin(), connections.end());
  std::erase_if(full_, [&](const auto& x) { return !there.contains(x.first); });
  int ended = 0;
  for (const int fd : connections) {
    if (!IsOver(fd, now)) continue;
    const Full stalled = full_[fd];
    full_.erase(fd);
    if (!Shutdown(fd, stalled.socket)) continue;
    ++ended;
    Log(LogLevel::kWarn,
        "a client of the unix socket does not read: its connection is ended",
        {{"unread_bytes", absl::StrCat(stalled.unread)}});
  }
  return ended;
}

bool StalledConnections::IsOver(int fd, MonotonicTime now) {
  const ino_t socket = SocketOf(fd);
  const bool has_room = HasRoom(fd);
  const int unread = BytesOnTheirWay(fd);
  const auto [at, is_new] = full_.try_emplace(fd);
  Full& full = at->second;
  if (has_room || is_new || socket != full.socket || unread != full.unread) {
    if (full.buffer != 0 && socket == full.socket) {
      SetBufferSize(fd, full.buffer);
    }
    full = {.socket = socket, .unread = unread, .since = now};
    if (has_room) full_.erase(at);
    return false;
  }
  if (full.buffer == 0 && now - full.since >= patience_ / 2) {
    full.buffer = BufferSize(fd);
    SetBufferSize(fd, 0);
    full.unread = BytesOnTheirWay(fd);  // something may have been put there
    full.since = now;
    return false;
  }
  return full.buffer != 0 && now - full.since >= patience_ / 2;
}

StallWatch::StallWatch(std::string unix_socket, MonotonicDuration patience)
    : thread_(
          [this,
           connections = StalledConnections(std::move(unix_socket), patience),
           pause = patience / kLooks]() mutable {
            Run(std::move(connections), pause);
          }) {}

StallWatch::~StallWatch() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void StallWatch::Run(StalledConnections connections, MonotonicDuration pause) {
  while (true) {
    const MonotonicTime next = MonotonicClock::now() + pause;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && MonotonicClock::now() < next) {
        changed_.WaitUntil(&mu_, next);
      }
      if (stopping_) return;
    }
    connections.Look(MonotonicClock::now());
  }
}

}  // namespace gemmd
