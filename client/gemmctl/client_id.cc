#include "client/gemmctl/client_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd::gemmctl {
namespace {

absl::Status Cannot(const std::string& what, const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot ", what, " ", path, " (", std::strerror(errno),
                   "); say who you are with --client-id"));
}

absl::StatusOr<std::string> Path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && state[0] == '/') {
    return absl::StrCat(state, "/gemmd/client-id");
  }
  if (home != nullptr && home[0] == '/') {
    return absl::StrCat(home, "/.local/state/gemmd/client-id");
  }
  return absl::InvalidArgumentError(
      "neither XDG_STATE_HOME nor HOME is set; say who you are with "
      "--client-id");
}

// Makes the file with `id` in it, unless it is there by now.
absl::Status Write(const std::string& path, const std::string& id) {
  std::error_code ignored;  // then open says why
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      ignored);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (fd < 0) return errno == EEXIST ? absl::OkStatus() : Cannot("make", path);
  const std::string line = id + "\n";
  const bool written =
      write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) unlink(path.c_str());
  absl::Status status = written ? absl::OkStatus() : Cannot("write", path);
  close(fd);
  return status;
}

absl::StatusOr<std::string> Read(const std::string& path) {
  std::ifstream file(path);
  std::string id;
  if (!(file >> id)) return Cannot("read", path);
  return id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ClientWithId(ClientOptions options) {
  if (!options.id.empty()) return Client::Create(options);
  const absl::StatusOr<std::string> path = Path();
  if (!path.ok()) return path.status();
  if (access(path->c_str(), F_OK) != 0) {
    absl::StatusOr<std::unique_ptr<Client>> any = Client::Create(options);
    if (!any.ok()) return any.status();
    absl::Status status = Write(*path, (*any)->id());
    if (!status.ok()) return status;
  }
  absl::StatusOr<std::string> id = Read(*path);
  if (!id.ok()) return id.status();
  options.id = *std::move(id);
  return Client::Create(options);
}

}  // namespace gemmd::gemmctl
