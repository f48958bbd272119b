#include "tests/bench/bench_requests.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace gemmd {

std::string RandomBytes(size_t floats, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::string bytes(floats * sizeof(float), '\0');
  for (size_t i = 0; i < floats; ++i) {
    const float x = uniform(random);
    std::memcpy(&bytes[i * sizeof(float)], &x, sizeof(x));
  }
  return bytes;
}

void SetOperand(int rows, int cols, v1::Operand* operand, unsigned seed) {
  operand->set_rows(rows);
  operand->set_cols(cols);
  operand->set_data(RandomBytes(size_t{1} * rows * cols, seed));
}

void SetResident(int rows, int cols, const std::string& id,
                 v1::Operand* operand) {
  operand->set_rows(rows);
  operand->set_cols(cols);
  operand->set_matrix_id(id);
}

void ExitUnless(const grpc::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.error_message().c_str());
  std::exit(1);
}

std::unique_ptr<v1::GemmService::Stub> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return v1::GemmService::NewStub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace gemmd
