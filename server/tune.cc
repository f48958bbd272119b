#include "server/tune.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/refining.h"
#include "kernels/selection_cache.h"
#include "kernels/tuning_device.h"
#include "server/observe/build_info.h"
#include "server/observe/logging.h"
#include "server/part_options.h"

namespace gemmd {
namespace {

std::string Build() {
  return absl::StrCat(BuildVersion(), " ", BuildRevision());
}

// Before the minutes of measuring: that the file can be written at their end.
absl::Status CheckPlace(const std::string& path) {
  const auto refuse = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--selection-cache ", path, ": cannot be written: ", why));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return refuse("a folder");
  const std::string probe = absl::StrCat(path, ".", getpid(), ".new");
  const int file =
      open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return refuse(std::strerror(errno));
  close(file);
  unlink(probe.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTune(const ServerOptions& options, std::ostream& progress) {
  if (options.selection_cache.empty()) {
    return absl::InvalidArgumentError(
        "--tune needs a file to write: name it with --selection-cache PATH");
  }
  if (options.backend == "cpu") {
    return absl::InvalidArgumentError(
        "--tune measures the kernels of a GPU; --backend is cpu");
  }
  absl::Status status = CheckPlace(options.selection_cache);
  if (!status.ok()) return status;
  // Makes the device the current one.
  const std::vector<int> devices = DevicesFor(BackendOptionsOf(options));
  const KernelRegistry registry =
      KernelRegistry::Create(devices.empty() ? 0 : devices.front());
  const auto stamp = DeviceStamp(Build());
  if (!stamp.ok()) return stamp.status();
  auto device = CreateCudaTuningDevice();
  if (!device.ok()) return device.status();
  progress << "measuring the kernels on " << stamp->gpu << " (driver "
           << stamp->driver << ", CUDA " << stamp->cuda << ", cuBLAS "
           << stamp->cublas << ")" << std::endl;
  const auto table =
      TuneFinely(registry, **device, *stamp,
                 [&progress](int done, int of, absl::string_view what) {
                   if (of > 0) progress << "[" << done << "/" << of << "] ";
                   progress << what << std::endl;
                 });
  if (!table.ok()) return table.status();
  status = WriteSelectionCache(options.selection_cache, *table);
  if (status.ok()) {
    progress << "wrote " << options.selection_cache << std::endl;
  }
  return status;
}

void UseSelectionCache(const ServerOptions& options, KernelRegistry* registry) {
  if (options.selection_cache.empty()) return;
  const auto stamp = DeviceStamp(Build());
  auto table = stamp.ok() ? ReadSelectionCache(options.selection_cache, *stamp)
                          : absl::StatusOr<SelectionTable>(stamp.status());
  if (!table.ok()) {
    Log(LogLevel::kWarn, "the selection cache is not used",
        {{"reason", std::string(table.status().message())}});
    return;
  }
  registry->UseTable(std::make_shared<const SelectionTable>(*std::move(table)));
}

}  // namespace gemmd
