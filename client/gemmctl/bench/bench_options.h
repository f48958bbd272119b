// What `gemmctl bench` is asked to do.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd::gemmctl {

// op(A) is m x k, op(B) is k x n.
struct BenchShape {
  int64_t m = 1024;
  int64_t n = 1024;
  int64_t k = 1024;
  double weight = 1;  // how often, beside the other shapes
};

// Where a product's operands and its answer are.
enum class OperandMode {
  kInline,     // A and B go with each request, C comes with the answer
  kResidentB,  // B stays on the server
  kResident,   // A, B and C stay there
  kShared,     // A, B and C are in memory shared with the server
};

enum class BenchFormat { kText, kCsv, kJson };

struct BenchOptions {
  std::vector<BenchShape> shapes = {{}};
  bool transpose_a = false;
  bool transpose_b = false;
  OperandMode operands = OperandMode::kInline;

  // One step each: products in flight; or with `rates`, products a second.
  std::vector<double> concurrency = {1};
  std::vector<double> rates = {};  // empty: a closed loop
  bool poisson = false;            // intervals are exponential, not constant
  int max_in_flight = 1000;        // of an open loop
  bool stream = false;             // ClientOptions::stream_small_products
  absl::Duration busy_poll;        // ClientOptions::busy_poll

  absl::Duration duration = absl::Seconds(5);  // unless `count` is given
  int64_t count = 0;                           // products; 0: by duration
  absl::Duration warmup = absl::Seconds(1);
  double stability = 0;  // percent; 0: one window
  int max_windows = 10;  // with stability

  double verify = 0;        // part of the answers that is verified
  bool keep_going = false;  // count errors, do not end at the first
  BenchFormat format = BenchFormat::kText;
};

// "1024" or "64x64x4096"; INVALID_ARGUMENT in the words of the command line.
absl::StatusOr<BenchShape> ReadShape(const std::string& text);

// A file of one shape a line, "MxNxK [weight]", with # before remarks.
absl::StatusOr<std::vector<BenchShape>> ReadShapeFile(const std::string& path);

// "8", "1:64:x2" (1, 2, 4, ..., 64) or "10:50:+20" (10, 30, 50). All above 0.
absl::StatusOr<std::vector<double>> ReadSteps(const std::string& text);

// "inline", "resident-b", "resident", "shared-memory".
const char* OperandModeName(OperandMode mode);

}  // namespace gemmd::gemmctl
