#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/client_id.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"
#include "client/gemmctl/format.h"
#include "client/gemmctl/json.h"
#include "client/gemmctl/transposed.h"
#include "client/sgemm_check.h"
#include "gemmd/npy.h"

namespace gemmd::gemmctl {
namespace {

constexpr absl::Duration kForever = absl::Hours(24 * 365);

// A matrix of the command line, as a file or, once that is asked for, on the
// server.
struct Input {
  NpyMatrix file;
  ResidentMatrix resident;

  int64_t rows() const { return resident ? resident.rows() : file.rows(); }
  int64_t cols() const { return resident ? resident.cols() : file.cols(); }
  bool transposed() const { return !resident && file.transposed; }
  Operand operand() const {
    return resident ? Operand(resident) : Operand(file.stored.view());
  }
};

// What must live as long as the call.
struct Inputs {
  Input a;
  Input b;
  Input c;
  ResidentMatrix output;  // an existing matrix to write into
};

// The id in "@ID"; empty: a file's name.
std::string Id(const std::string& name) {
  return name.size() > 1 && name[0] == '@' ? name.substr(1) : "";
}

bool NeedsServer(const MultiplyOptions& options) {
  return !Id(options.a).empty() || !Id(options.b).empty() ||
         !Id(options.c).empty() || !Id(options.output).empty();
}

std::string Shape(int64_t rows, int64_t cols) {
  return absl::StrCat(rows, " x ", cols);
}

// Better known now than after the product.
absl::Status CheckOutput(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError("-o is empty; it wants a file's name");
  }
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a directory; -o wants a file's name"));
  }
  if (exists && !S_ISREG(info.st_mode)) return absl::OkStatus();
  // Permissions alone do not tell: nobody makes files in /proc.
  std::string probe = absl::StrCat(path, ".XXXXXX");
  const int fd = mkstemp(probe.data());
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  close(fd);
  unlink(probe.c_str());
  return absl::OkStatus();
}

absl::StatusOr<Inputs> ReadInputs(const MultiplyOptions& options) {
  Inputs inputs;
  const auto read = [](const std::string& path, Input* to) {
    if (!Id(path).empty()) return absl::OkStatus();
    absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
    if (!matrix.ok()) return matrix.status();
    to->file = *std::move(matrix);
    return absl::OkStatus();
  };
  absl::Status status = read(options.a, &inputs.a);
  if (status.ok()) status = read(options.b, &inputs.b);
  if (status.ok() && !options.c.empty()) status = read(options.c, &inputs.c);
  if (!status.ok()) return status;
  return inputs;
}

// The matrices that are on the server.
absl::Status FindInputs(Client& client, const MultiplyOptions& options,
                        Inputs* inputs) {
  const auto find = [&](const std::string& name, ResidentMatrix* to) {
    if (Id(name).empty()) return absl::OkStatus();
    absl::StatusOr<ResidentMatrix> matrix = client.FindMatrix(Id(name));
    if (!matrix.ok()) return matrix.status();
    *to = *std::move(matrix);
    return absl::OkStatus();
  };
  absl::Status status = find(options.a, &inputs->a.resident);
  if (status.ok()) status = find(options.b, &inputs->b.resident);
  if (status.ok()) status = find(options.c, &inputs->c.resident);
  if (!status.ok()) return status;
  status = find(options.output, &inputs->output);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a new one
}

// The shapes in the words of the command line.
absl::Status CheckShapes(const Inputs& inputs, const MultiplyOptions& options) {
  const bool ta = options.transpose_a;
  const bool tb = options.transpose_b;
  const int64_t k = ta ? inputs.a.rows() : inputs.a.cols();
  const int64_t rows_of_b = tb ? inputs.b.cols() : inputs.b.rows();
  if (k != rows_of_b) {
    const int64_t other_k = ta ? inputs.a.cols() : inputs.a.rows();
    const int64_t other_rows = tb ? inputs.b.rows() : inputs.b.cols();
    return absl::InvalidArgumentError(absl::StrCat(
        "the shapes do not fit: ", options.a, ta ? " transposed" : "", " has ",
        k, " columns and ", options.b, tb ? " transposed" : "", " has ",
        rows_of_b, " rows, which should be as many (", options.a, " is ",
        Shape(inputs.a.rows(), inputs.a.cols()), ", ", options.b, " is ",
        Shape(inputs.b.rows(), inputs.b.cols()), ")",
        other_rows == k ? absl::StrCat("; they do ", tb ? "without" : "with",
                                       " --transpose-b")
        : other_k == rows_of_b
            ? absl::StrCat("; they do ", ta ? "without" : "with",
                           " --transpose-a")
            : ""));
  }
  const int64_t m = ta ? inputs.a.cols() : inputs.a.rows();
  const int64_t n = tb ? inputs.b.rows() : inputs.b.cols();
  if (!options.c.empty() && (inputs.c.rows() != m || inputs.c.cols() != n)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shapes do not fit: ", options.c, " is ",
                     Shape(inputs.c.rows(), inputs.c.cols()),
                     " and the product is ", Shape(m, n)));
  }
  return absl::OkStatus();
}

absl::Status CheckBeta(const MultiplyOptions& options) {
  if (options.c.empty() && options.beta != 0) {
    return absl::InvalidArgumentError(
        "--beta is given without --c; give the matrix to add, or no --beta");
  }
  if (!options.c.empty() && options.beta == 0) {
    return absl::InvalidArgumentError(
        "--c is given without --beta; give a --beta other than 0, or no --c");
  }
  return absl::OkStatus();
}

SgemmCall MakeCall(const CommandLine& line, Inputs* inputs) {
  const MultiplyOptions& options = line.multiply;
  // The wire has no transpose for C.
  if (inputs->c.transposed()) {
    inputs->c.file = {.stored = Transposed(inputs->c.file.stored)};
  }
  std::optional<ResidentOutput> resident_output;
  if (inputs->output) {
    resident_output = ResidentOutput{.into = &inputs->output};
  } else if (!Id(options.output).empty()) {
    resident_output = ResidentOutput{.id = Id(options.output)};
  }
  return {
      .a = inputs->a.operand(),
      .b = inputs->b.operand(),
      .c = options.c.empty() ? Operand() : inputs->c.operand(),
      .transpose_a = options.transpose_a != inputs->a.transposed(),
      .transpose_b = options.transpose_b != inputs->b.transposed(),
      .alpha = options.alpha,
      .beta = options.beta,
      .precision = line.precision,
      .kernel = line.kernel,
      .resident_output = resident_output,
  };
}

std::string StagesJson(const SgemmExecution& execution) {
  return JsonObject()
      .Add("decode", absl::ToDoubleSeconds(execution.decode))
      .Add("queue", absl::ToDoubleSeconds(execution.queue))
      .Add("h2d", absl::ToDoubleSeconds(execution.h2d))
      .Add("compute", absl::ToDoubleSeconds(execution.compute))
      .Add("d2h", absl::ToDoubleSeconds(execution.d2h))
      .Add("encode", absl::ToDoubleSeconds(execution.encode))
      .str();
}

// The device's name, where the server tells it still.
std::string DeviceName(Client& client, uint32_t index) {
  const absl::StatusOr<ServerInfo> info = client.GetServerInfo();
  if (!info.ok()) return "";
  for (const ServerInfo::Device& device : info->devices) {
    if (device.index == index) return device.name;
  }
  return "";
}

// The library ends a call late when the server stops reading in the middle of
// it (see Client). A person is told in time all the same, and the process ends
// as it is, call and all.
absl::StatusOr<SgemmAnswer> MultiplyInTime(Client& client,
                                           const SgemmCall& call,
                                           const ClientOptions& options) {
  constexpr absl::Duration kGrace = absl::Seconds(1);
  std::promise<absl::StatusOr<SgemmAnswer>> promise;
  std::future<absl::StatusOr<SgemmAnswer>> answer = promise.get_future();
  client.SgemmAsync(call, [&promise](absl::StatusOr<SgemmAnswer> result) {
    promise.set_value(std::move(result));
  });
  const absl::Duration wait = std::min(options.timeout + kGrace, kForever);
  if (answer.wait_for(absl::ToChronoSeconds(wait)) ==
      std::future_status::timeout) {
    std::_Exit(FailRemote(absl::DeadlineExceededError(
        absl::StrCat(options.address, " did not take the operands within ",
                     absl::FormatDuration(options.timeout)))));
  }
  return answer.get();
}

void Report(const CommandLine& line, const SgemmAnswer& answer,
            const client::ProductSize& size, const std::string& device) {
  const SgemmExecution& execution = answer.execution;
  const auto [m, n, k] = size;
  if (line.json) {
    const JsonObject report =
        JsonObject()
            .Add("output", line.multiply.output)
            .Add("rows", m)
            .Add("cols", n)
            .Add("k", k)
            .Add("kernel", execution.kernel)
            .Add("precision", PrecisionName(execution.precision))
            .Add("device", execution.device)
            .Add("device_name", device)
            .Add("batch_size", execution.batch_size)
            .Add("attempts", answer.attempts)
            .Add("elapsed_seconds", absl::ToDoubleSeconds(answer.elapsed))
            .AddJson("stage_seconds", StagesJson(execution));
    std::printf("%s\n", report.str().c_str());
    return;
  }
  const double seconds = absl::ToDoubleSeconds(execution.compute);
  std::fprintf(
      stderr, "%s",
      FormatTable(
          {{"product", absl::StrCat(line.multiply.output, ": ", Shape(m, n),
                                    " (k = ", k, ")")},
           {"kernel",
            absl::StrCat(
                execution.kernel, ", ", PrecisionName(execution.precision),
                seconds > 0 ? ", " + FormatFlops(2.0 * m * n * k / seconds)
                            : "")},
           {"device", absl::StrCat(execution.device,
                                   device.empty() ? "" : " (" + device + ")")},
           {"stages", absl::StrCat("decode ", FormatTime(execution.decode),
                                   ", queue ", FormatTime(execution.queue),
                                   ", to device ", FormatTime(execution.h2d),
                                   ", compute ", FormatTime(execution.compute),
                                   ", back ", FormatTime(execution.d2h),
                                   ", encode ", FormatTime(execution.encode))},
           {"elapsed", FormatTime(answer.elapsed)}})
          .c_str());
}

}  // namespace

int RunMultiply(const CommandLine& line) {
  const MultiplyOptions& options = line.multiply;
  absl::Status status = CheckBeta(options);
  const bool to_file = Id(options.output).empty();
  if (status.ok() && to_file) status = CheckOutput(options.output);
  if (!status.ok()) return Fail(status, kUsage);
  absl::StatusOr<Inputs> inputs = ReadInputs(options);
  if (!inputs.ok()) return Fail(inputs.status(), kUsage);
  const bool needs_server = NeedsServer(options);
  absl::StatusOr<std::unique_ptr<Client>> client =
      needs_server ? ClientWithId(line.client) : Client::Create(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);
  if (needs_server) status = FindInputs(**client, options, &*inputs);
  if (!status.ok()) return FailRemote(status);
  status = CheckShapes(*inputs, options);
  if (!status.ok()) return Fail(status, kUsage);
  const SgemmCall call = MakeCall(line, &*inputs);
  const absl::StatusOr<client::ProductSize> size = client::CheckCall(call);
  if (!size.ok()) return Fail(size.status(), kUsage);

  absl::StatusOr<SgemmAnswer> answer =
      MultiplyInTime(**client, call, line.client);
  if (!answer.ok()) return FailRemote(answer.status());
  if (answer->resident) answer->resident.Release();
  if (to_file) status = WriteNpy(options.output, answer->c.view());
  if (!status.ok()) return Fail(status, kFailed);
  Report(line, *answer, *size, DeviceName(**client, answer->execution.device));
  return kOk;
}

}  // namespace gemmd::gemmctl
