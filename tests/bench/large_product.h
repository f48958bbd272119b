// A product too large to send.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gemmd/v1/gemm_service.grpc.pb.h"

namespace gemmd {

// One whose operands are made on the server, each the product of a column and a
// row: A = u v, B = w x. The numbers of A B = (v w) u x are known.
class LargeProduct {
 public:
  LargeProduct(const std::string& address, int order);

  // Seconds until the answer, which stays on the server, is here.
  double Run() const;

  // Ends the program if a row of the answer is wrong.
  void CheckRow(int row) const;

 private:
  std::vector<float> Vector(unsigned seed) const;
  void MakeOperand(const std::string& id, unsigned seed);

  const std::unique_ptr<v1::GemmService::Stub> stub_;
  const int order_;
  v1::SgemmRequest request_;
};

}  // namespace gemmd
