// The same small products as unary calls and as items of one SgemmStream: what
// does a stream save?
//
//   gemmd_stream_bench ADDRESS SERVER_PID [SECONDS]
//
// One connection and one thread here, so that what is compared is the cost of a
// call. Unary and stream take turns, three each; a line for each size and
// number in flight has the median rates, their ratio, and the CPU time that
// client and server together spent on a product, which other work on the
// machine changes less. Exits with 1 when a call fails.

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gemmd/v1/sgemm.pb.h"

namespace gemmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "gemmd_stream_bench: %s\n", message.c_str());
  std::exit(1);
}

// That the process has used, in all its threads.
double CpuSeconds(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string word;
  while (file >> word && word.back() != ')') {
  }
  // utime is the 12th after the name.
  for (int i = 0; i < 11; ++i) file >> word;
  double user = 0, system = 0;
  if (!(file >> user >> system)) Fail("no process " + pid);
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

template <typename Message>
grpc::ByteBuffer Bytes(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// C = A B of n x n matrices of ones.
v1::SgemmRequest Product(int n) {
  const std::vector<float> ones(size_t{1} * n * n, 1.0f);
  v1::SgemmRequest request;
  for (v1::Operand* x : {request.mutable_a(), request.mutable_b()}) {
    x->set_rows(n);
    x->set_cols(n);
    x->set_data(ones.data(), sizeof(float) * ones.size());
  }
  return request;
}

// Keeps calls in flight until `end`; how many were answered.
class Unary {
 public:
  Unary(grpc::GenericStub* stub, const grpc::ByteBuffer& request)
      : stub_(stub), request_(request) {}

  int64_t Run(int in_flight, Clock::time_point end) {
    for (int i = 0; i < in_flight; ++i) Start();
    int64_t answered = 0;
    void* tag;
    bool ok;
    for (int running = in_flight; running > 0;) {
      queue_.Next(&tag, &ok);
      const std::unique_ptr<Call> call(static_cast<Call*>(tag));
      if (!call->status.ok()) Fail(call->status.error_message());
      ++answered;
      if (Clock::now() < end) {
        Start();
      } else {
        --running;
      }
    }
    return answered;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::Status status;
    grpc::ByteBuffer answer;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };

  void Start() {
    auto* const call = new Call;
    call->context.set_wait_for_ready(true);
    call->reader = stub_->PrepareUnaryCall(
        &call->context, "/gemmd.v1.GemmService/Sgemm", request_, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
  }

  grpc::GenericStub* const stub_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
};

// Likewise, on a stream of its own.
class Stream {
 public:
  Stream(grpc::GenericStub* stub, const grpc::ByteBuffer& item) : item_(item) {
    context_.set_wait_for_ready(true);
    stream_ = stub->PrepareCall(&context_, "/gemmd.v1.GemmService/SgemmStream",
                                &queue_);
    stream_->StartCall(&start_);
    Next();
  }

  int64_t Run(int in_flight, Clock::time_point end) {
    int64_t sent = 0;
    int64_t answered = 0;
    bool writing = false;
    stream_->Read(&answer_, &read_);
    for (;;) {
      if (!writing && sent - answered < in_flight && Clock::now() < end) {
        stream_->Write(item_, &write_);
        writing = true;
        ++sent;
      }
      if (!writing && sent == answered) break;
      if (Next() == &write_) {
        writing = false;
      } else {
        ++answered;
        stream_->Read(&answer_, &read_);
      }
    }
    Finish();
    return answered;
  }

 private:
  const char* Next() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    if (!ok && !finishing_) Fail("the stream ended");
    return static_cast<const char*>(tag);
  }

  void Finish() {
    finishing_ = true;
    stream_->WritesDone(&write_);
    Next();  // of it and of the last read
    Next();
    grpc::Status status;
    stream_->Finish(&status, &finish_);
    Next();
    if (!status.ok()) Fail(status.error_message());
  }

  const grpc::ByteBuffer item_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer answer_;
  bool finishing_ = false;
  char start_ = 0, read_ = 0, write_ = 0, finish_ = 0;  // their addresses: tags
};

// Of one way.
struct Figures {
  std::array<double, kRounds> rates = {};
  double cpu_seconds = 0;
  int64_t products = 0;

  double rate() {
    std::sort(rates.begin(), rates.end());
    return rates[kRounds / 2];
  }
  double cpu_us() const {
    return 1e6 * cpu_seconds / static_cast<double>(products);
  }
};

template <typename Way>
void Measure(Way* way, int in_flight, double seconds, const std::string& server,
             int round, Figures* figures) {
  const double cpu = CpuSeconds("self") + CpuSeconds(server);
  const Clock::time_point start = Clock::now();
  const auto length = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
  const int64_t products = way->Run(in_flight, start + length);
  const std::chrono::duration<double> took = Clock::now() - start;
  figures->rates[round] = static_cast<double>(products) / took.count();
  figures->cpu_seconds += CpuSeconds("self") + CpuSeconds(server) - cpu;
  figures->products += products;
}

void Main(const std::string& address, const std::string& server,
          double seconds) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
  std::printf("%4s %9s %12s %12s %7s %10s %10s\n", "n", "in flight", "unary/s",
              "stream/s", "ratio", "unary us", "stream us");
  for (const int n : {1, 16, 64, 256}) {
    const v1::SgemmRequest product = Product(n);
    v1::SgemmStreamRequest item;
    item.set_sequence(1);
    *item.mutable_request() = product;
    for (const int in_flight : {1, 8, 64}) {
      Figures unary, stream;
      for (int round = 0; round < kRounds; ++round) {
        Unary calls(&stub, Bytes(product));
        Measure(&calls, in_flight, seconds, server, round, &unary);
        Stream items(&stub, Bytes(item));
        Measure(&items, in_flight, seconds, server, round, &stream);
      }
      std::printf("%4d %9d %12.0f %12.0f %7.2f %10.1f %10.1f\n", n, in_flight,
                  unary.rate(), stream.rate(), stream.rate() / unary.rate(),
                  unary.cpu_us(), stream.cpu_us());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr,
                 "usage: gemmd_stream_bench ADDRESS SERVER_PID [SECONDS]\n");
    return 2;
  }
  gemmd::Main(argv[1], argv[2], argc == 4 ? std::atof(argv[3]) : 1);
}
