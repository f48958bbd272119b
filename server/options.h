// What the operator decides: every flag of the server, its default and limits.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd {

// One field a flag (see `gemmd --help`). Durations of 0 are allowed where said.
struct ServerOptions {
  std::string listen = "127.0.0.1:50051";      // port 0 picks a free one
  std::string unix_socket;                     // path; empty: none
  bool shared_memory = false;                  // with clients of unix_socket
  std::string http_listen = "127.0.0.1:9464";  // empty: no HTTP
  bool insecure = false;                       // plaintext gRPC beyond loopback
  std::string tls_cert;                        // PEM files; empty: plaintext
  std::string tls_key;
  std::string tls_client_ca;     // empty: no client certificates
  std::string auth_token_file;   // empty: everybody may do everything
  std::string backend = "auto";  // auto, cpu, cuda
  std::vector<int> devices;      // empty: all
  std::string kernel = "auto";   // for requests that name none
  std::string selection_cache;   // path of what --tune wrote; empty: none
  bool tune = false;             // measure, write selection_cache, end
  int streams_per_device = 0;    // 0: the backend's default
  int max_batch_requests = 64;
  absl::Duration max_queue_delay = absl::ZeroDuration();
  absl::Duration max_row_hold = absl::Microseconds(500);  // 0: none is held
  int split_gflop = 1000;  // of a product that all devices share; 0: none is
  int queue_max_requests = 4096;
  size_t queue_max_bytes = size_t{4} << 30;
  absl::Duration device_timeout = absl::Seconds(60);
  size_t max_inline_bytes = 0;  // a whole message; 0: 256 MiB, or what fits
  size_t pinned_pool_bytes = size_t{4} << 30;  // staging memory, at most
  // Of each device, for resident matrices; nullopt: the backend's share.
  std::optional<size_t> matrix_store_bytes;
  absl::Duration matrix_ttl = absl::Minutes(15);  // since the last use
  absl::Duration drain_delay = absl::ZeroDuration();
  absl::Duration drain_timeout = absl::Seconds(30);
  absl::Duration max_connection_age = absl::InfiniteDuration();
  int max_streams = 1024;     // a connection
  int completion_queues = 0;  // 0: the fastest known
  absl::Duration busy_poll = absl::ZeroDuration();
  bool channelz = false;
  bool metrics = true;
  std::string log_level = "info";   // trace debug info warn error
  std::string log_format = "text";  // text, json
};

// What the command line asks for besides serving.
struct CommandLine {
  ServerOptions options;
  bool exit = false;   // --help or --version was answered
  std::string output;  // what to print then, on stdout
};

// Reads flags, GEMMD_<FLAG> and --config FILE; a flag beats the environment,
// the environment beats the file. INVALID_ARGUMENT with one line that says what
// was wrong and what would be right.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// "1 GiB", "256MiB", "1048576" -> bytes.
absl::StatusOr<size_t> ParseBytes(absl::string_view text);

}  // namespace gemmd
