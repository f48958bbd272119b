// The service's figures beside those of a raw gRPC echo of the same bytes, the
// same connections and the same number of calls in flight, both in one run, in
// turns. tests/bench/service.sh starts the servers and keeps the results.
//
//   throughput GEMMD ECHO     64 in flight, 64^3
//   latency GEMMD ECHO        one in flight, 64^3
//   half_load GEMMD ECHO      half of the throughput, 64^3
//   pauses GEMMD ECHO         after pauses, 64^3
//   inline GEMMD ECHO         1024^3 and 4096^3 through 4 connections
//   rows GEMMD ECHO           64 connections of one row each by one resident
//                             4096 x 4096
//   clients GEMMD             64 connections, 64^3
//   large GEMMD ORDER TIMES   one product of that order at a time, all resident
//
// A line a figure: name, unit, figure, what it is compared with, tabs between.
// `rows` needs the server for itself: service.sh reads its metrics afterwards.

#include <grpcpp/impl/codegen/proto_utils.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gemmd/v1/gemm_service.grpc.pb.h"
#include "server/rpc/malloc_settings.h"
#include "tests/bench/bench_requests.h"
#include "tests/bench/large_product.h"
#include "tests/bench/raw_load.h"

namespace gemmd {
namespace {

constexpr char kSgemm[] = "/gemmd.v1.GemmService/Sgemm";
constexpr int kSize = 64;
constexpr int kInFlight = 64;
constexpr int kRounds = 5;
constexpr double kRoundSeconds = 1;

int Threads() {
  // The servers want the other cores.
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4,
                    1, 4);
}

int Connections() {
  const char* const text = std::getenv("GEMMD_BENCH_CONNECTIONS");
  return text == nullptr ? 8 : std::atoi(text);
}

grpc::ByteBuffer ToBuffer(const v1::SgemmRequest& request) {
  grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer Product(int size = kSize) {
  v1::SgemmRequest request;
  SetOperand(size, size, request.mutable_a());
  SetOperand(size, size, request.mutable_b());
  return ToBuffer(request);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

void Print(const char* name, const char* unit, double figure, double compared) {
  std::printf("%s\t%s\t%.6g\t%.6g\n", name, unit, figure, compared);
  std::fflush(stdout);
}

// gemmd and the echo, with the same load.
class Pair {
 public:
  Pair(const std::string& gemmd, const std::string& echo, int connections,
       int threads, const grpc::ByteBuffer& request = Product())
      : answer_bytes_(AnswerBytes(gemmd, request)),
        gemmd_({gemmd, kSgemm}, request, connections, threads),
        echo_({echo, "/echo", answer_bytes_}, request, connections, threads) {}

  size_t answer_bytes() const { return answer_bytes_; }

  struct Results {
    std::vector<LoadResult> gemmd;
    std::vector<LoadResult> echo;
  };
  Results Measure(const std::function<LoadResult(RawLoad&)>& run) {
    Results results;
    for (int round = -1; round < kRounds; ++round) {  // one to warm up
      LoadResult gemmd = run(gemmd_);
      LoadResult echo = run(echo_);
      if (round < 0) continue;
      results.gemmd.push_back(std::move(gemmd));
      results.echo.push_back(std::move(echo));
    }
    return results;
  }

  // Seconds that the device computes for one product, median of some.
  double ComputeMicroseconds() {
    std::vector<double> us;
    for (int i = 0; i < 200; ++i) {
      grpc::ByteBuffer answer;
      gemmd_.CallOnce(&answer);
      v1::SgemmResponse response;
      grpc::SerializationTraits<v1::SgemmResponse>::Deserialize(&answer,
                                                                &response);
      us.push_back(1e6 * response.execution().compute_seconds());
    }
    return Median(us);
  }

 private:
  static size_t AnswerBytes(const std::string& gemmd,
                            const grpc::ByteBuffer& request) {
    RawLoad load({gemmd, kSgemm}, request, 1, 1);
    grpc::ByteBuffer answer;
    load.CallOnce(&answer);
    return answer.Length();
  }

  const size_t answer_bytes_;
  RawLoad gemmd_;
  RawLoad echo_;
};

double MedianRate(const std::vector<LoadResult>& results) {
  std::vector<double> rates;
  for (const LoadResult& r : results) rates.push_back(r.requests_per_second);
  return Median(rates);
}

double MedianPercentile(const std::vector<LoadResult>& results, double p) {
  std::vector<double> values;
  for (const LoadResult& r : results) values.push_back(r.Percentile(p));
  return Median(values);
}

void Throughput(const std::string& gemmd, const std::string& echo) {
  Pair pair(gemmd, echo, Connections(), Threads());
  const auto results = pair.Measure(
      [](RawLoad& load) { return load.RunClosed(kInFlight, kRoundSeconds); });
  Print("throughput", "requests/s", MedianRate(results.gemmd),
        MedianRate(results.echo));
}

void Latency(const std::string& gemmd, const std::string& echo) {
  Pair pair(gemmd, echo, 1, 1);
  const double compute = pair.ComputeMicroseconds();
  const auto results = pair.Measure(
      [](RawLoad& load) { return load.RunClosed(1, kRoundSeconds); });
  Print("latency_p50", "us", MedianPercentile(results.gemmd, 50),
        MedianPercentile(results.echo, 50) + compute);
}

void HalfLoad(const std::string& gemmd, const std::string& echo) {
  Pair pair(gemmd, echo, Connections(), Threads());
  const double compute = pair.ComputeMicroseconds();
  const auto most = pair.Measure([](RawLoad& load) {
    return load.RunClosed(kInFlight, kRoundSeconds / 2);
  });
  const double rate = MedianRate(most.gemmd) / 2;
  const auto results = pair.Measure(
      [rate](RawLoad& load) { return load.RunOpen(rate, kRoundSeconds); });
  Print("half_load_p99", "us", MedianPercentile(results.gemmd, 99) - compute,
        MedianPercentile(results.echo, 99));
  Print("half_load_p50", "us", MedianPercentile(results.gemmd, 50) - compute,
        MedianPercentile(results.echo, 50));
}

// The first call after each of 20 pauses, and p50 when busy.
struct AfterPauses {
  double busy_us;
  std::vector<double> us;
  double device_us = 0;  // of the slowest: copies and kernel

  double worst() const { return *std::max_element(us.begin(), us.end()); }
};

AfterPauses MeasurePauses(RawLoad& load, bool of_gemmd) {
  AfterPauses result = {load.RunClosed(1, kRoundSeconds).Percentile(50), {}};
  std::mt19937_64 random(std::random_device{}());
  std::uniform_real_distribution<double> between(1, 3.3);
  for (int i = 0; i < 20; ++i) {
    const double pause = i % 3 == 0   ? 1.05
                         : i % 3 == 1 ? 2.15
                                      : between(random);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    grpc::ByteBuffer answer;
    result.us.push_back(load.CallOnce(&answer));
    if (!of_gemmd || result.us.back() < result.worst()) continue;
    v1::SgemmResponse response;
    grpc::SerializationTraits<v1::SgemmResponse>::Deserialize(&answer,
                                                              &response);
    const v1::Execution& e = response.execution();
    result.device_us =
        1e6 * (e.h2d_seconds() + e.compute_seconds() + e.d2h_seconds());
  }
  return result;
}

// The echo's pauses go on beside gemmd's: both wait and nothing else.
void Pauses(const std::string& gemmd, const std::string& echo) {
  AfterPauses of_echo;
  std::thread beside([&] {
    RawLoad load({echo, "/echo", kSize * kSize * sizeof(float)}, Product(), 1,
                 1);
    of_echo = MeasurePauses(load, /*of_gemmd=*/false);
  });
  RawLoad load({gemmd, kSgemm}, Product(), 1, 1);
  const AfterPauses of_gemmd = MeasurePauses(load, /*of_gemmd=*/true);
  beside.join();
  Print("pauses_worst", "us", of_gemmd.worst(), of_gemmd.busy_us);
  Print("pauses_median", "us", Median(of_gemmd.us), of_gemmd.busy_us);
  Print("pauses_worst_device", "us", of_gemmd.device_us, of_gemmd.busy_us);
  Print("pauses_echo_worst", "us", of_echo.worst(), of_echo.busy_us);
  Print("pauses_echo_median", "us", Median(of_echo.us), of_echo.busy_us);
}

// Bytes a second in both directions.
void Inline(const std::string& gemmd, const std::string& echo) {
  constexpr int kConnections = 4;
  for (const int size : {1024, 4096}) {
    const grpc::ByteBuffer request = Product(size);
    Pair pair(gemmd, echo, kConnections, Threads(), request);
    const auto results = pair.Measure([](RawLoad& load) {
      return load.RunClosed(2 * kConnections, kRoundSeconds);
    });
    const double bytes = request.Length() + pair.answer_bytes();
    Print(("inline_" + std::to_string(size)).c_str(), "bytes/s",
          bytes * MedianRate(results.gemmd), bytes * MedianRate(results.echo));
  }
}

// The same rows through `in_flight` connections.
void Rows(const std::string& address, const std::string& echo) {
  constexpr int kOrder = 4096;
  constexpr size_t kChunk = size_t{1} << 20;
  const auto stub = Connect(address);
  grpc::ClientContext context;
  v1::UploadMatrixResponse uploaded;
  auto writer = stub->UploadMatrix(&context, &uploaded);
  v1::UploadMatrixRequest message;
  message.mutable_header()->set_rows(kOrder);
  message.mutable_header()->set_cols(kOrder);
  const std::string id = "bench-" + std::to_string(getpid());
  message.mutable_header()->set_matrix_id(id);
  writer->Write(message);
  const std::string matrix = RandomBytes(size_t{kOrder} * kOrder);
  for (size_t at = 0; at < matrix.size(); at += kChunk) {
    message.set_chunk(matrix.substr(at, kChunk));
    if (!writer->Write(message)) break;
  }
  writer->WritesDone();
  ExitUnless(writer->Finish(), "upload");
  v1::SgemmRequest request;
  SetOperand(1, kOrder, request.mutable_a());
  SetResident(kOrder, kOrder, id, request.mutable_b());
  Pair pair(address, echo, kInFlight, Threads(), ToBuffer(request));
  const auto results = pair.Measure([](RawLoad& load) {
    return load.RunClosed(kInFlight, kRoundSeconds / 2);
  });
  Print("rows_rate", "requests/s", MedianRate(results.gemmd),
        MedianRate(results.echo));
}

void Clients(const std::string& address) {
  RawLoad load({address, kSgemm}, Product(), kInFlight, Threads());
  std::vector<LoadResult> results;
  for (int round = -1; round < kRounds; ++round) {  // one to warm up
    LoadResult result = load.RunClosed(kInFlight, kRoundSeconds / 2);
    if (round >= 0) results.push_back(std::move(result));
  }
  Print("clients", "requests/s", MedianRate(results), 0);
}

void Large(const std::string& address, int order, int times) {
  const LargeProduct product(address, order);
  const double tflop = 2e-12 * order * order * order;
  // The first brings the operands to where they are wanted.
  Print("large_first", "TFLOP/s", tflop / product.Run(), 0);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(product.Run());
  for (const int row : {0, order / 2 - 1, order / 2, order - 1}) {
    product.CheckRow(row);
  }
  Print("large", "TFLOP/s", tflop / Median(seconds), 0);
}

int Main(const std::vector<std::string>& arguments) {
  ConfigureMalloc();
  using Measure = void (*)(const std::string&, const std::string&);
  static const std::map<std::string, Measure> pairs = {
      {"throughput", Throughput}, {"latency", Latency}, {"half_load", HalfLoad},
      {"pauses", Pauses},         {"inline", Inline},   {"rows", Rows}};
  static const std::map<std::string, void (*)(const std::string&)> alone = {
      {"clients", Clients}};
  if (arguments.size() == 3 && pairs.contains(arguments[0])) {
    pairs.at(arguments[0])(arguments[1], arguments[2]);
    return 0;
  }
  if (arguments.size() == 2 && alone.contains(arguments[0])) {
    alone.at(arguments[0])(arguments[1]);
    return 0;
  }
  if (arguments.size() == 4 && arguments[0] == "large") {
    Large(arguments[1], std::atoi(arguments[2].c_str()),
          std::atoi(arguments[3].c_str()));
    return 0;
  }
  std::fprintf(stderr,
               "usage: gemmd_service_load "
               "throughput|latency|half_load|pauses|inline|rows GEMMD ECHO\n"
               "       gemmd_service_load clients GEMMD\n"
               "       gemmd_service_load large GEMMD ORDER TIMES\n");
  return 2;
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) { return gemmd::Main({argv + 1, argv + argc}); }
