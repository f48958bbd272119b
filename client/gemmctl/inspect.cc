// info, kernels and health.

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"
#include "client/gemmctl/format.h"
#include "client/gemmctl/json.h"

namespace gemmd::gemmctl {
namespace {

std::string OrUnlimited(const std::string& text, uint64_t value) {
  return value == 0 ? "no limit" : text;
}

std::string DevicesJson(const ServerInfo& info) {
  JsonArray devices;
  for (const ServerInfo::Device& device : info.devices) {
    devices.Add(JsonObject()
                    .Add("index", device.index)
                    .Add("name", device.name)
                    .Add("memory_bytes", device.memory_bytes)
                    .Add("compute_capability", device.compute_capability)
                    .Add("streams", device.streams));
  }
  return devices.str();
}

std::string KernelsJson(const ServerInfo& info) {
  JsonArray kernels;
  for (const ServerInfo::Kernel& kernel : info.kernels) {
    kernels.Add(JsonObject()
                    .Add("name", kernel.name)
                    .Add("backend", kernel.backend)
                    .Add("precision", PrecisionName(kernel.precision))
                    .Add("available", kernel.available)
                    .Add("unavailable_reason", kernel.unavailable_reason)
                    .Add("batch_invariant", kernel.batch_invariant)
                    .Add("description", kernel.description));
  }
  return kernels.str();
}

std::string InfoJson(const ServerInfo& info) {
  const ServerInfo::Limits& limits = info.limits;
  const JsonObject limits_json =
      JsonObject()
          .Add("max_inline_bytes", limits.max_inline_bytes)
          .Add("max_queue_requests", limits.max_queue_requests)
          .Add("max_queue_bytes", limits.max_queue_bytes)
          .Add("max_batch_requests", limits.max_batch_requests)
          .Add("max_queue_delay_seconds",
               absl::ToDoubleSeconds(limits.max_queue_delay))
          .Add("matrix_store_bytes", limits.matrix_store_bytes)
          .Add("max_chunk_bytes", limits.max_chunk_bytes)
          .Add("shared_memory", limits.shared_memory);
  return JsonObject()
      .Add("version", info.version)
      .Add("build", info.build)
      .Add("backend", info.backend)
      .AddJson("devices", DevicesJson(info))
      .AddJson("kernels", KernelsJson(info))
      .AddJson("limits", limits_json.str())
      .str();
}

std::string InfoText(const ServerInfo& info, const std::string& address) {
  const ServerInfo::Limits& limits = info.limits;
  std::string text =
      absl::StrCat("gemmd ", info.version, " at ", address, ", backend ",
                   info.backend, "\nbuild: ", info.build, "\n\n");
  std::vector<std::vector<std::string>> devices = {
      {"DEVICE", "NAME", "MEMORY", "COMPUTE", "STREAMS"}};
  for (const ServerInfo::Device& device : info.devices) {
    devices.push_back(
        {absl::StrCat(device.index), device.name,
         FormatBytes(device.memory_bytes),
         device.compute_capability.empty() ? "-" : device.compute_capability,
         absl::StrCat(device.streams)});
  }
  absl::StrAppend(&text, FormatTable(devices), "\n");
  absl::StrAppend(
      &text,
      FormatTable(
          {{"LIMIT", "VALUE"},
           {"one message", OrUnlimited(FormatBytes(limits.max_inline_bytes),
                                       limits.max_inline_bytes)},
           {"queue, requests",
            OrUnlimited(absl::StrCat(limits.max_queue_requests),
                        limits.max_queue_requests)},
           {"queue, bytes", OrUnlimited(FormatBytes(limits.max_queue_bytes),
                                        limits.max_queue_bytes)},
           {"batch, requests",
            OrUnlimited(absl::StrCat(limits.max_batch_requests),
                        limits.max_batch_requests)},
           {"queue delay", FormatTime(limits.max_queue_delay)}}));
  return text;
}

std::string KernelsText(const ServerInfo& info) {
  std::vector<std::vector<std::string>> rows = {
      {"KERNEL", "BACKEND", "PRECISION", "AVAILABLE", "DESCRIPTION"}};
  for (const ServerInfo::Kernel& kernel : info.kernels) {
    rows.push_back(
        {kernel.name, kernel.backend, PrecisionName(kernel.precision),
         kernel.available ? "yes" : "no",
         kernel.available ? kernel.description
                          : absl::StrCat(kernel.description, " [cannot run: ",
                                         kernel.unavailable_reason, "]")});
  }
  return FormatTable(rows);
}

// Asks, and prints what `print` makes of the answer.
template <typename Print>
int AskInfo(const CommandLine& line, Print print) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  const absl::StatusOr<ServerInfo> info = (*client)->GetServerInfo();
  if (!info.ok()) return FailRemote(info.status());
  std::fputs(print(*info).c_str(), stdout);
  return kOk;
}

const char* HealthName(ServerHealth health) {
  switch (health) {
    case ServerHealth::kServing:
      return "SERVING";
    case ServerHealth::kNotServing:
      return "NOT_SERVING";
    case ServerHealth::kUnknown:
      break;
  }
  return "UNKNOWN";
}

}  // namespace

int RunInfo(const CommandLine& line) {
  return AskInfo(line, [&](const ServerInfo& info) {
    return line.json ? InfoJson(info) + "\n"
                     : InfoText(info, line.client.address);
  });
}

int RunKernels(const CommandLine& line) {
  return AskInfo(line, [&](const ServerInfo& info) {
    return line.json ? KernelsJson(info) + "\n" : KernelsText(info);
  });
}

int RunHealth(const CommandLine& line) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  const absl::StatusOr<ServerHealth> health =
      (*client)->Health(line.health_service);
  if (!health.ok()) return FailRemote(health.status());
  const char* const name = HealthName(*health);
  const std::string text =
      line.json ? JsonObject().Add("status", name).str() : std::string(name);
  std::printf("%s\n", text.c_str());
  return *health == ServerHealth::kServing ? kOk : kFailed;
}

}  // namespace gemmd::gemmctl
