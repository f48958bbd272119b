// upload, download, matrices and delete.

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/gemmctl/client_id.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"
#include "client/gemmctl/format.h"
#include "client/gemmctl/json.h"
#include "client/gemmctl/transposed.h"
#include "gemmd/npy.h"

namespace gemmd::gemmctl {
namespace {

using Info = ResidentMatrix::Info;

std::string Json(const Info& info) {
  return JsonObject()
      .Add("id", info.id)
      .Add("rows", info.rows)
      .Add("cols", info.cols)
      .Add("complete", info.complete)
      .Add("device_bytes", info.device_bytes)
      .AddJson("devices",
               absl::StrCat("[", absl::StrJoin(info.devices, ", "), "]"))
      .Add("expires_in_seconds", absl::ToDoubleSeconds(info.expires_in))
      .Add("uses", info.uses)
      .str();
}

std::string Table(const std::vector<Info>& all) {
  std::vector<std::vector<std::string>> rows = {
      {"ID", "SHAPE", "ON DEVICES", "DEVICES", "EXPIRES IN", "USES"}};
  for (const Info& info : all) {
    rows.push_back(
        {info.id,
         absl::StrCat(info.rows, " x ", info.cols,
                      info.complete ? "" : " (incomplete)"),
         FormatBytes(info.device_bytes), absl::StrJoin(info.devices, ","),
         absl::FormatDuration(absl::Floor(info.expires_in, absl::Seconds(1))),
         absl::StrCat(info.uses)});
  }
  return FormatTable(rows);
}

}  // namespace

int RunUpload(const CommandLine& line) {
  absl::StatusOr<NpyMatrix> file = ReadNpy(line.matrix.file);
  if (!file.ok()) return Fail(file.status(), kUsage);
  // The server keeps rows together.
  if (file->transposed) *file = {.stored = Transposed(file->stored)};
  const auto client = ClientWithId(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  UploadOptions options;
  if (!line.matrix.ids.empty()) options.id = line.matrix.ids.front();
  if (line.matrix.ttl > absl::ZeroDuration()) options.ttl = line.matrix.ttl;
  absl::StatusOr<ResidentMatrix> matrix =
      (*client)->Upload(file->stored.view(), options);
  if (!matrix.ok()) {
    return absl::IsInvalidArgument(matrix.status())
               ? Fail(matrix.status(), kUsage)
               : FailRemote(matrix.status());
  }
  const JsonObject report = JsonObject()
                                .Add("id", matrix->id())
                                .Add("rows", matrix->rows())
                                .Add("cols", matrix->cols());
  const std::string id = matrix->Release();
  std::printf("%s\n", line.json ? report.str().c_str() : id.c_str());
  return kOk;
}

int RunDownload(const CommandLine& line) {
  const auto client = ClientWithId(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  const absl::StatusOr<ResidentMatrix> matrix =
      (*client)->FindMatrix(line.matrix.ids.front());
  if (!matrix.ok()) return FailRemote(matrix.status());
  const absl::StatusOr<Matrix> numbers = (*client)->Download(*matrix);
  if (!numbers.ok()) return FailRemote(numbers.status());
  const absl::Status status = WriteNpy(line.matrix.file, numbers->view());
  return status.ok() ? kOk : Fail(status, kFailed);
}

int RunMatrices(const CommandLine& line) {
  const auto client = ClientWithId(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  const absl::StatusOr<std::vector<Info>> all = (*client)->ListMatrices();
  if (!all.ok()) return FailRemote(all.status());
  if (line.json) {
    std::printf(
        "[%s]\n",
        absl::StrJoin(*all, ", ", [](std::string* out, const Info& info) {
          out->append(Json(info));
        }).c_str());
  } else {
    std::fputs(Table(*all).c_str(), stdout);
  }
  return kOk;
}

int RunDelete(const CommandLine& line) {
  const auto client = ClientWithId(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  for (const std::string& id : line.matrix.ids) {
    absl::Status status = (*client)->DeleteMatrix(id);
    if (!status.ok()) return FailRemote(status);
  }
  return kOk;
}

}  // namespace gemmd::gemmctl
