#include "client/shared_blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/sgemm_check.h"
#include "proto/shared_memory.h"

namespace gemmd::client {
namespace {

// Registering pins the pages on CUDA, some 40 ms a GiB.
constexpr timeval kReplyTimeout = {.tv_sec = 30, .tv_usec = 0};

absl::Status SystemError(const std::string& what) {
  return absl::ErrnoToStatus(errno, what);
}

absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("the socket's path is too long: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("cannot make a socket");
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kReplyTimeout, sizeof kReplyTimeout);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof address) == 0) {
    return fd;
  }
  absl::Status status = absl::UnavailableError(
      absl::StrCat("no shared memory at ", path, " (", std::strerror(errno),
                   "): check that gemmd runs with --shared-memory"));
  close(fd);
  return status;
}

bool SendWithDescriptor(int socket, const RegionRequest& request, int memfd) {
  iovec data = {.iov_base = const_cast<RegionRequest*>(&request),
                .iov_len = sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memfd, sizeof memfd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof request);
}

}  // namespace

SharedBlock::SharedBlock(std::string path, size_t bytes, int memfd,
                         std::byte* data)
    : path_(std::move(path)), bytes_(bytes), memfd_(memfd), data_(data) {}

absl::StatusOr<std::shared_ptr<SharedBlock>> SharedBlock::Create(
    const std::string& path, size_t bytes) {
  const int memfd =
      memfd_create("gemmd-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd < 0) return SystemError("cannot make shared memory");
  absl::Cleanup close_memfd = [memfd] { close(memfd); };
  // Sealed for good: a server must be able to rely on the pages.
  if (ftruncate(memfd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    return SystemError(absl::StrCat("cannot share ", bytes, " bytes"));
  }
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (data == MAP_FAILED) {
    return SystemError(absl::StrCat("cannot map ", bytes, " bytes"));
  }
  std::move(close_memfd).Cancel();
  std::shared_ptr<SharedBlock> block(
      new SharedBlock(path, bytes, memfd, static_cast<std::byte*>(data)));
  absl::Status status = block->Renew("");
  if (!status.ok()) return status;
  return block;
}

SharedBlock::~SharedBlock() {
  if (socket_ >= 0) close(socket_);
  munmap(data_, bytes_);
  close(memfd_);
}

std::string SharedBlock::region_id() const {
  std::lock_guard<std::mutex> lock(mu_);
  return region_id_;
}

absl::Status SharedBlock::Renew(const std::string& region_id) {
  std::lock_guard<std::mutex> lock(mu_);
  return region_id_ == region_id ? Register() : absl::OkStatus();
}

absl::Status SharedBlock::Register() {
  absl::StatusOr<int> socket = Connect(path_ + kSharedMemorySuffix);
  if (!socket.ok()) return socket.status();
  absl::Cleanup close_socket = [&] { close(*socket); };
  RegionReply reply;
  if (!SendWithDescriptor(*socket, {.bytes = bytes_}, memfd_) ||
      recv(*socket, &reply, sizeof reply, MSG_WAITALL) !=
          static_cast<ssize_t>(sizeof reply)) {
    return absl::UnavailableError(
        absl::StrCat("the server did not take the shared memory (",
                     std::strerror(errno), ")"));
  }
  if (reply.code != 0) {
    reply.message[sizeof reply.message - 1] = '\0';
    return absl::Status(static_cast<absl::StatusCode>(reply.code),
                        reply.message);
  }
  if (socket_ >= 0) close(socket_);
  socket_ = *socket;
  std::move(close_socket).Cancel();
  region_id_.assign(reinterpret_cast<const char*>(reply.region_id),
                    kRegionIdBytes);
  return absl::OkStatus();
}

void SharedBlocks::Add(const std::shared_ptr<SharedBlock>& block) {
  std::lock_guard<std::mutex> lock(mu_);
  std::erase_if(blocks_, [](const auto& weak) { return weak.expired(); });
  blocks_.push_back(block);
}

SharedPlace SharedBlocks::Find(const MatrixView& x) const {
  if (IsEmpty(x)) return {};
  std::lock_guard<std::mutex> lock(mu_);
  for (const std::weak_ptr<SharedBlock>& weak : blocks_) {
    std::shared_ptr<SharedBlock> block = weak.lock();
    if (block == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(block->data());
    const auto first = reinterpret_cast<uintptr_t>(x.data);
    const size_t span =
        sizeof(float) *
        static_cast<size_t>((x.rows - 1) * LeadingDimension(x) + x.cols);
    if (first < begin || first - begin > block->bytes() ||
        span > block->bytes() - (first - begin)) {
      continue;
    }
    return {std::move(block), first - begin};
  }
  return {};
}

}  // namespace gemmd::client
