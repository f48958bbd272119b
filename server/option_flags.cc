#include "server/option_flags.h"

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/option_kinds.h"

namespace gemmd {
namespace {

// protobuf's limit on a message is 2 GiB; the rest is room above ours, so that
// it is our own error that says which limit was passed.
constexpr size_t kMaxMessageBytes = 1900 * kMiB;

absl::Status SetDevices(absl::string_view value, ServerOptions* options) {
  options->devices.clear();
  if (value == "all") return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    int device;
    if (!absl::SimpleAtoi(part, &device) || device < 0) {
      return BadValue(value, "\"all\" or device numbers, as 0,1");
    }
    for (const int other : options->devices) {
      if (other == device) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", value, "\" names device ", device, " twice"));
      }
    }
    options->devices.push_back(device);
  }
  return absl::OkStatus();
}

absl::Status SetMatrixStoreBytes(absl::string_view value,
                                 ServerOptions* options) {
  options->matrix_store_bytes.reset();
  if (value == "auto") return absl::OkStatus();
  const absl::StatusOr<size_t> bytes = ParseBytes(value);
  if (!bytes.ok() || *bytes > 64 * kTiB) {
    return BadValue(value, "\"auto\" or a size from 0 to 64TiB, as 8GiB");
  }
  options->matrix_store_bytes = *bytes;
  return absl::OkStatus();
}

OptionFlag MaxInlineFlag() {
  OptionFlag flag =
      BytesFlag("max-inline-bytes", &ServerOptions::max_inline_bytes, 64 * kKiB,
                kMaxMessageBytes,
                "A request or an answer, at most; auto: 256MiB, or an eighth "
                "of the container's memory where that is less");
  flag.default_text = "auto";
  flag.set = [set = flag.set](absl::string_view value, ServerOptions* options) {
    if (value != "auto") return set(value, options);
    options->max_inline_bytes = 0;
    return absl::OkStatus();
  };
  return flag;
}

std::vector<OptionFlag> MakeFlags() {
  using O = ServerOptions;
  const absl::Duration kZero = absl::ZeroDuration();
  const absl::Duration kDay = absl::Hours(24);
  return {
      AddressFlag("listen", &O::listen,
                  "Where gRPC is answered; port 0 picks a free one; empty: "
                  "the unix socket alone"),
      TextFlag("unix-socket", "PATH", &O::unix_socket,
               "A unix socket on which gRPC is answered too"),
      BoolFlag("shared-memory", "", &O::shared_memory,
               "Let clients of the unix socket share memory with the server, "
               "over PATH.shm beside it"),
      AddressFlag("http-listen", &O::http_listen,
                  "Where /metrics, /livez and /readyz are answered in "
                  "plaintext; empty: nowhere"),
      BoolFlag("insecure", "", &O::insecure,
               "Allow plaintext gRPC on an address beyond loopback"),
      GuardFlag("tls-cert", &O::tls_cert,
                "The server's certificate chain (PEM), for TLS on --listen; "
                "followed while the server runs, as the two below"),
      GuardFlag("tls-key", &O::tls_key, "Its private key (PEM)"),
      GuardFlag("tls-client-ca", &O::tls_client_ca,
                "Roots (PEM) of client certificates, which are then required"),
      GuardFlag("auth-token-file", &O::auth_token_file,
                "Who may call: a line \"NAME ROLES CREDENTIAL\" each (see "
                "SECURITY.md); read anew on SIGHUP"),
      ChoiceFlag("backend", &O::backend, {"auto", "cpu", "cuda"},
                 "What multiplies; auto takes CUDA where a device answers"),
      {"devices", "all|LIST", "CUDA devices to use, as 0,1", "all", SetDevices,
       /*list=*/true},
      TextFlag("kernel", "NAME", &O::kernel,
               "The kernel of requests that name none (gemmctl kernels lists "
               "them)"),
      TextFlag("selection-cache", "PATH", &O::selection_cache,
               "What --tune measured on this machine: the kernels that auto "
               "takes"),
      BoolFlag("tune", "", &O::tune,
               "Measure the kernels, write --selection-cache and exit"),
      IntFlag("streams-per-device", &O::streams_per_device, 0, 128,
              "Batches that a device runs at the same time; 0: the backend's "
              "own choice"),
      IntFlag("max-batch-requests", &O::max_batch_requests, 1, 65536,
              "Requests in a batch, at most"),
      DurationFlag("max-queue-delay", &O::max_queue_delay, kZero,
                   absl::Minutes(1),
                   "How long a request may wait for others while the device "
                   "is free; 0: a batch forms only while it is busy"),
      DurationFlag("max-row-hold", &O::max_row_hold, kZero, absl::Minutes(1),
                   "How long rows by one resident matrix are held, at most, "
                   "while more requests have come in; 0: not at all. Without "
                   "--max-queue-delay"),
      IntFlag("split-gflop", &O::split_gflop, 0, 1'000'000'000,
              "A product of so many GFLOP or more is shared by rows between "
              "all devices; 0: none is"),
      IntFlag("queue-max-requests", &O::queue_max_requests, 1, 10'000'000,
              "Requests held (waiting, running, being answered), at most; "
              "more are refused, and a client's before its share is passed"),
      BytesFlag("queue-max-bytes", &O::queue_max_bytes, kMiB, 64 * kTiB,
                "Bytes of the requests held, at most; more are refused"),
      MaxInlineFlag(),
      BytesFlag("pinned-pool-bytes", &O::pinned_pool_bytes, kMiB, 64 * kTiB,
                "Staging memory (pinned with CUDA), at most"),
      {"matrix-store-bytes", "auto|SIZE",
       "Memory of each device for resident matrices; auto: half of what a GPU "
       "has free, an eighth of the memory on a CPU",
       "auto", SetMatrixStoreBytes},
      DurationFlag("matrix-ttl", &O::matrix_ttl, absl::Milliseconds(100),
                   30 * kDay,
                   "How long a resident matrix is kept after its last use, "
                   "where the request does not say"),
      DurationFlag("device-timeout", &O::device_timeout, absl::Milliseconds(10),
                   kDay,
                   "A device that ends none of its work for so long, and for "
                   "what that takes at its slowest, is given up"),
      DurationFlag("drain-delay", &O::drain_delay, kZero, kDay,
                   "How long requests are still accepted after health turned "
                   "NOT_SERVING"),
      DurationFlag("drain-timeout", &O::drain_timeout, kZero, kDay,
                   "How long the requests accepted may take to finish then"),
      DurationFlag("max-connection-age", &O::max_connection_age,
                   absl::Seconds(1), absl::InfiniteDuration(),
                   "After this a client is told to connect anew, which "
                   "spreads clients over servers"),
      IntFlag("max-streams", &O::max_streams, 1, 1'000'000,
              "RPCs at once on a connection, at most"),
      IntFlag("completion-queues", &O::completion_queues, 0, 256,
              "gRPC's queues, each with a polling thread; 0: one, which "
              "answers a lone request soonest. Four serve more on 16 cores"),
      DurationFlag("busy-poll", &O::busy_poll, kZero, absl::Seconds(1),
                   "How long a polling thread looks for the next event before "
                   "it sleeps: takes that much of a core for a faster answer "
                   "to the next request"),
      BoolFlag("channelz", "", &O::channelz, "Serve grpc.channelz.v1"),
      BoolFlag("metrics", "on|off", &O::metrics, "Count, and serve /metrics"),
      ChoiceFlag("log-level", &O::log_level,
                 {"trace", "debug", "info", "warn", "error"},
                 "The least serious lines written to stderr"),
      ChoiceFlag("log-format", &O::log_format, {"text", "json"},
                 "How a line of the log is written"),
  };
}

}  // namespace

std::string OptionFlag::environment_name() const {
  return absl::StrCat(
      "GEMMD_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}})));
}

const std::vector<OptionFlag>& OptionFlags() {
  static const auto* flags = new std::vector<OptionFlag>(MakeFlags());
  return *flags;
}

const OptionFlag* FindOptionFlag(absl::string_view name) {
  for (const OptionFlag& flag : OptionFlags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

}  // namespace gemmd
