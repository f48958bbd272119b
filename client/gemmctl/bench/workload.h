// The products that a load is made of.

#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gemmctl/command_line.h"
#include "gemmd/client.h"

namespace gemmd::gemmctl {

// Random matrices in the shapes and the places that were asked for.
//
// Thread-compatible. The client outlives it and its slots.
class Workload {
 public:
  // Where one product in flight puts its answers, one place a shape; reused, so
  // that no product pays for fresh memory.
  struct Slot {
    std::vector<Matrix> outputs;
    std::vector<ResidentMatrix> resident_outputs;
    std::vector<SharedMemory> shared_outputs;
  };

  // Draws the matrices and uploads those that are to be resident.
  static absl::StatusOr<std::unique_ptr<Workload>> Create(
      Client* client, const CommandLine& line);

  // A shape's number, drawn by the weights.
  size_t DrawShape();

  // The product of a shape, into the slot's place for it.
  SgemmCall Call(size_t shape, Slot* slot) const;

  // Keeps what the answer brought.
  void Keep(size_t shape, SgemmAnswer* answer, Slot* slot) const;

  double Flops(size_t shape) const;
  double WireBytes(size_t shape) const;  // numbers, both ways

  // Downloads the answers that stayed on the server and verifies them, for the
  // client itself has not seen them. DATA_LOSS if one is wrong.
  absl::Status VerifyResidentOutputs(const Slot& slot, int64_t* verified) const;

 private:
  struct Product {
    BenchShape shape;
    Matrix a;
    Matrix b;
    ResidentMatrix resident_a;
    ResidentMatrix resident_b;
    SharedMemory shared;  // A, then B
  };

  static absl::Status Share(Client* client, Product* product);
  // False when there is no more shared memory: then it goes inline.
  bool SetShared(size_t shape, Slot* slot, SgemmCall* call) const;

  Workload(Client* client, const CommandLine& line)
      : client_(client), line_(line) {}

  Client* const client_;
  const CommandLine line_;
  std::vector<Product> products_;
  std::minstd_rand random_{1};
  std::discrete_distribution<size_t> draw_;
};

}  // namespace gemmd::gemmctl
