#include "tests/bench/large_product.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/bench_requests.h"

namespace gemmd {

LargeProduct::LargeProduct(const std::string& address, int order)
    : stub_(Connect(address)), order_(order) {
  MakeOperand("large_a", /*seed=*/1);
  MakeOperand("large_b", /*seed=*/3);
  SetResident(order, order, "large_a", request_.mutable_a());
  SetResident(order, order, "large_b", request_.mutable_b());
  request_.mutable_output()->mutable_resident()->set_matrix_id("large_c");
}

double LargeProduct::Run() const {
  const auto start = std::chrono::steady_clock::now();
  grpc::ClientContext context;
  v1::SgemmResponse response;
  ExitUnless(stub_->Sgemm(&context, request_, &response), "large product");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

void LargeProduct::CheckRow(int row) const {
  grpc::ClientContext context;
  v1::DownloadMatrixRequest request;
  request.set_matrix_id("large_c");
  request.set_first_row(row);
  request.set_row_count(1);
  auto reader = stub_->DownloadMatrix(&context, request);
  v1::DownloadMatrixResponse response;
  std::string bytes;
  while (reader->Read(&response)) bytes += response.chunk();
  ExitUnless(reader->Finish(), "download");
  const auto u = Vector(1), v = Vector(2), w = Vector(3), x = Vector(4);
  double dot = 0;
  double magnitude = 0;
  for (int i = 0; i < order_; ++i) {
    dot += double{v[i]} * w[i];
    magnitude += std::abs(double{v[i]} * w[i]);
  }
  std::vector<float> got(order_);
  if (bytes.size() == got.size() * sizeof(float)) {
    std::memcpy(got.data(), bytes.data(), bytes.size());
  }
  for (int j = 0; j < order_; ++j) {
    const double scale = double{u[row]} * x[j];
    // The operands were rounded once more.
    const double bound =
        std::ldexp((order_ + 8) * magnitude * std::abs(scale), -24) + 1e-37;
    if (std::abs(got[j] - dot * scale) <= bound) continue;
    std::fprintf(stderr, "C(%d, %d) is %g, wanted %g +- %g\n", row, j, got[j],
                 dot * scale, bound);
    std::exit(1);
  }
}

std::vector<float> LargeProduct::Vector(unsigned seed) const {
  const std::string bytes = RandomBytes(order_, seed);
  std::vector<float> values(order_);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void LargeProduct::MakeOperand(const std::string& id, unsigned seed) {
  v1::SgemmRequest request;
  SetOperand(order_, 1, request.mutable_a(), seed);
  SetOperand(1, order_, request.mutable_b(), seed + 1);
  request.mutable_output()->mutable_resident()->set_matrix_id(id);
  grpc::ClientContext context;
  v1::SgemmResponse response;
  ExitUnless(stub_->Sgemm(&context, request, &response), id.c_str());
}

}  // namespace gemmd
