#include "kernels/selection_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

absl::Status CheckStamp(const SelectionStamp& found,
                        const SelectionStamp& wanted) {
  const auto check = [](absl::string_view what, absl::string_view found,
                        absl::string_view wanted) {
    if (found == wanted) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("it was measured with ", what, " ", found, "; this is ",
                     wanted, ": measure again with gemmd --tune"));
  };
  absl::Status status = check("the GPU", found.gpu, wanted.gpu);
  status.Update(check("driver", found.driver, wanted.driver));
  status.Update(check("CUDA", found.cuda, wanted.cuda));
  status.Update(check("cuBLAS", found.cublas, wanted.cublas));
  status.Update(check("build", found.build, wanted.build));
  return status;
}

absl::Status CannotWrite(const std::string& path) {
  return absl::InternalError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SelectionTable> ReadSelectionCache(const std::string& path,
                                                  const SelectionStamp& stamp) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  std::ostringstream text;
  text << file.rdbuf();
  auto table = SelectionTable::Parse(text.str());
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ", ", table.status().message()));
  }
  absl::Status status = CheckStamp(table->stamp(), stamp);
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", status.message()));
  }
  return table;
}

absl::Status WriteSelectionCache(const std::string& path,
                                 const SelectionTable& table) {
  // Another process may be doing the same: each has a file of its own.
  const std::string unfinished = absl::StrCat(path, ".", getpid(), ".new");
  const int file = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return CannotWrite(unfinished);
  auto remove = absl::MakeCleanup([&] { std::remove(unfinished.c_str()); });
  const std::string text = table.ToText();
  bool written = true;
  for (size_t at = 0; at < text.size() && written;) {
    const ssize_t n = write(file, text.data() + at, text.size() - at);
    written = n > 0;
    if (written) at += static_cast<size_t>(n);
  }
  // On the disk before its name is: or a crash could leave an empty file.
  written = written && fsync(file) == 0;
  const int error = errno;
  close(file);
  errno = error;
  if (!written) return CannotWrite(unfinished);
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return CannotWrite(path);
  }
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace gemmd
