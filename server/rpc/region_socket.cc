#include "server/rpc/region_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/shared_memory.h"
#include "server/observe/logging.h"
#include "server/rpc/listening.h"

namespace gemmd {
namespace {

constexpr size_t kMaxConnections = 2048;
constexpr int kMaxDescriptors = 8;
constexpr std::chrono::milliseconds kPause(10);

// What came of one read: a request with its descriptors.
struct Received {
  ssize_t bytes = -1;  // as recvmsg's; 0: the end
  RegionRequest request;
  std::vector<int> descriptors;
};

Received Receive(int fd) {
  Received received;
  // One byte more than a request, so that a longer message is seen.
  char data[sizeof(RegionRequest) + 1] = {};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  iovec piece = {data, sizeof(data)};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  received.bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received.bytes < 0) return received;
  std::memcpy(&received.request, data, sizeof(received.request));
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      received.descriptors.push_back(descriptor);
    }
  }
  return received;
}

absl::StatusOr<std::string> Register(const Received& received,
                                     SharedRegions& regions) {
  const RegionRequest& request = received.request;
  if (received.bytes != sizeof(request)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", received.bytes, " bytes; ",
                     sizeof(request), " in one piece are wanted"));
  }
  if (request.version != kSharedMemoryVersion || request.reserved != 0) {
    return absl::UnimplementedError(
        absl::StrCat("the request is of version ", request.version,
                     "; this server speaks ", kSharedMemoryVersion));
  }
  if (received.descriptors.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request brought ", received.descriptors.size(),
                     " descriptors; one memfd is wanted"));
  }
  return regions.Add(received.descriptors[0], request.bytes);
}

void Reply(int fd, const absl::StatusOr<std::string>& region_id) {
  RegionReply reply;
  reply.code = static_cast<uint32_t>(region_id.status().code());
  if (region_id.ok()) {
    std::memcpy(reply.region_id, region_id->data(), sizeof(reply.region_id));
  } else {
    const absl::string_view text = region_id.status().message();
    std::memcpy(reply.message, text.data(),
                std::min(text.size(), sizeof(reply.message) - 1));
  }
  // It fits an empty socket's buffer; a client that is gone is noticed later.
  static_cast<void>(
      send(fd, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT));
}

absl::Status CheckPeer(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (known && (peer.uid == geteuid() || peer.uid == 0)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "memory can be shared by processes of the server's own user alone");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionSocket>> RegionSocket::Listen(
    const std::string& path, SharedRegions* regions) {
  if (absl::Status s = CheckUnixSocketPath(path); !s.ok()) return s;
  const int listener =
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  unlink(path.c_str());  // nobody listens there: see above
  const bool bound = listener >= 0 &&
                     bind(listener, reinterpret_cast<sockaddr*>(&address),
                          sizeof(address)) == 0 &&
                     chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0 &&
                     listen(listener, 64) == 0;
  if (!bound) {
    const int error = errno;
    if (listener >= 0) close(listener);
    return absl::UnavailableError(
        absl::StrCat("cannot listen on unix:", path, ": ",
                     std::system_category().message(error)));
  }
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return std::unique_ptr<RegionSocket>(
      new RegionSocket(path, listener, wake, regions));
}

RegionSocket::RegionSocket(std::string path, int listener, int wake,
                           SharedRegions* regions)
    : path_(std::move(path)),
      listener_(listener),
      wake_(wake),
      regions_(regions),
      thread_([this] { Run(); }) {}

RegionSocket::~RegionSocket() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof(one)));
  thread_.join();
  close(wake_);
  close(listener_);
  unlink(path_.c_str());
}

void RegionSocket::Run() {
  while (true) {
    std::vector<pollfd> watched = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [fd, region_id] : connections_) {
      watched.push_back({fd, POLLIN, 0});
    }
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
    if (watched[0].revents != 0) break;
    for (size_t i = 2; i < watched.size(); ++i) {
      const int fd = watched[i].fd;
      if (watched[i].revents == 0) continue;
      std::string& region_id = connections_[fd];
      if (OnReadable(fd, &region_id)) continue;
      regions_->Remove(region_id);
      connections_.erase(fd);
      close(fd);
    }
    if (watched[1].revents != 0) Accept();
  }
  for (const auto& [fd, region_id] : connections_) {
    regions_->Remove(region_id);
    close(fd);
  }
}

void RegionSocket::Accept() {
  const int fd =
      accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // Gone again; or no descriptor is left: it will be there at the next look.
    if (errno != EAGAIN) std::this_thread::sleep_for(kPause);
    return;
  }
  absl::Status status = CheckPeer(fd);
  if (status.ok() && connections_.size() >= kMaxConnections) {
    status = absl::ResourceExhaustedError("too many connections share memory");
  }
  if (status.ok()) {
    connections_.emplace(fd, "");
    return;
  }
  Log(LogLevel::kWarn, "shared memory refused",
      {{"reason", std::string(status.message())}});
  Reply(fd, status);
  close(fd);
}

bool RegionSocket::OnReadable(int fd, std::string* region_id) {
  const Received received = Receive(fd);
  const absl::Cleanup close_descriptors = [&] {
    for (const int descriptor : received.descriptors) close(descriptor);
  };
  if (received.bytes < 0) return errno == EAGAIN || errno == EINTR;
  // The end, or more than the one request that there may be.
  if (received.bytes == 0 || !region_id->empty()) return false;
  absl::StatusOr<std::string> added = Register(received, *regions_);
  Reply(fd, added);
  if (!added.ok()) return false;
  *region_id = *std::move(added);
  return true;
}

}  // namespace gemmd
