// Unary calls of raw bytes to one server, many at a time: the client of the
// service's figures. It decodes nothing, so that what is compared is servers.

#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

namespace gemmd {

struct RawTarget {
  std::string address;    // HOST:PORT or unix:PATH
  std::string method;     // "/gemmd.v1.GemmService/Sgemm"
  size_t echo_bytes = 0;  // asked of the echo server
};

struct LoadResult {
  double requests_per_second = 0;
  std::vector<double> latencies_us;  // in no order

  double Percentile(double percent) const;
};

// Connections of their own, opened once and used by every run.
//
// Thread-compatible. A call that fails ends the process with its message.
class RawLoad {
 public:
  // Each thread has its own completion queue and its part of the connections.
  RawLoad(RawTarget target, const grpc::ByteBuffer& request, int connections,
          int threads);

  // Keeps `in_flight` calls in flight: whoever has its answer asks again.
  LoadResult RunClosed(int in_flight, double seconds);

  // Calls at random times (Poisson), whatever becomes of those before them; a
  // latency counts from when the call was due.
  LoadResult RunOpen(double calls_per_second, double seconds);

  // One call; its microseconds.
  double CallOnce(grpc::ByteBuffer* answer);

 private:
  class Worker;

  const RawTarget target_;
  const grpc::ByteBuffer request_;
  const int threads_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
};

}  // namespace gemmd
