#include "client/gemmctl/bench/workload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/product_check.h"

namespace gemmd::gemmctl {
namespace {

Matrix RandomMatrix(int64_t rows, int64_t cols, bool transpose,
                    std::minstd_rand* random) {
  if (transpose) std::swap(rows, cols);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix x(rows, cols);
  std::generate_n(x.data(), rows * cols, [&] { return uniform(*random); });
  return x;
}

absl::Status Upload(Client* client, const Matrix& from, ResidentMatrix* to) {
  absl::StatusOr<ResidentMatrix> uploaded =
      client->Upload(from.view(), {.source_lives = true, .digest = false});
  if (!uploaded.ok()) return uploaded.status();
  *to = *std::move(uploaded);
  return absl::OkStatus();
}

}  // namespace

// Moves A and B into shared memory.
absl::Status Workload::Share(Client* client, Product* product) {
  const auto bytes = [](const Matrix& x) {
    return sizeof(float) * static_cast<size_t>(x.rows() * x.cols());
  };
  absl::StatusOr<SharedMemory> memory =
      client->ShareMemory(bytes(product->a) + bytes(product->b) + 1);
  if (!memory.ok()) return memory.status();
  std::memcpy(memory->data(), product->a.data(), bytes(product->a));
  std::memcpy(memory->data() + bytes(product->a), product->b.data(),
              bytes(product->b));
  product->shared = *std::move(memory);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Workload>> Workload::Create(
    Client* client, const CommandLine& line) {
  const BenchOptions& bench = line.bench;
  std::unique_ptr<Workload> workload(new Workload(client, line));
  std::vector<double> weights;
  for (const BenchShape& shape : bench.shapes) {
    Product& product = workload->products_.emplace_back();
    product.shape = shape;
    product.a =
        RandomMatrix(shape.m, shape.k, bench.transpose_a, &workload->random_);
    product.b =
        RandomMatrix(shape.k, shape.n, bench.transpose_b, &workload->random_);
    absl::Status status;
    if (bench.operands != OperandMode::kInline) {
      status = Upload(client, product.b, &product.resident_b);
    }
    if (status.ok() && bench.operands == OperandMode::kResident) {
      status = Upload(client, product.a, &product.resident_a);
    }
    if (status.ok() && bench.operands == OperandMode::kShared) {
      status = Share(client, &product);
    }
    if (!status.ok()) return status;
    weights.push_back(shape.weight);
  }
  workload->draw_ =
      std::discrete_distribution<size_t>(weights.begin(), weights.end());
  return workload;
}

size_t Workload::DrawShape() { return draw_(random_); }

SgemmCall Workload::Call(size_t shape, Slot* slot) const {
  const Product& product = products_[shape];
  slot->outputs.resize(products_.size());
  slot->resident_outputs.resize(products_.size());
  slot->shared_outputs.resize(products_.size());
  SgemmCall call = {.a = product.a.view(),
                    .b = product.b.view(),
                    .transpose_a = line_.bench.transpose_a,
                    .transpose_b = line_.bench.transpose_b,
                    .precision = line_.precision,
                    .kernel = line_.kernel};
  if (product.resident_a) call.a = product.resident_a;
  if (product.resident_b) call.b = product.resident_b;
  if (line_.bench.operands == OperandMode::kResident) {
    ResidentMatrix& output = slot->resident_outputs[shape];
    call.resident_output = ResidentOutput{.into = output ? &output : nullptr};
    return call;
  }
  if (line_.bench.operands == OperandMode::kShared &&
      SetShared(shape, slot, &call)) {
    return call;
  }
  Matrix& output = slot->outputs[shape];
  if (output.data() == nullptr)
    output = Matrix(product.shape.m, product.shape.n);
  call.output = output.mutable_view();
  return call;
}

bool Workload::SetShared(size_t shape, Slot* slot, SgemmCall* call) const {
  const Product& product = products_[shape];
  const auto [m, n, k, weight] = product.shape;
  SharedMemory& output = slot->shared_outputs[shape];
  if (output.bytes() == 0) {
    auto memory = client_->ShareMemory(sizeof(float) * m * n + 1);
    if (!memory.ok()) return false;
    output = *std::move(memory);
  }
  const Matrix& a = product.a;
  const Matrix& b = product.b;
  call->a = product.shared.Matrix(a.rows(), a.cols(), 0);
  call->b = product.shared.Matrix(b.rows(), b.cols(), sizeof(float) * m * k);
  call->output = output.Matrix(m, n, 0);
  return true;
}

void Workload::Keep(size_t shape, SgemmAnswer* answer, Slot* slot) const {
  if (answer->resident) {
    slot->resident_outputs[shape] = std::move(answer->resident);
  }
}

double Workload::Flops(size_t shape) const {
  const BenchShape& s = products_[shape].shape;
  return 2.0 * s.m * s.n * s.k;
}

double Workload::WireBytes(size_t shape) const {
  const auto [m, n, k, weight] = products_[shape].shape;
  switch (line_.bench.operands) {
    case OperandMode::kInline:
      break;
    case OperandMode::kResidentB:
      return 4.0 * m * k + 4.0 * m * n;
    case OperandMode::kResident:
    case OperandMode::kShared:
      return 0;
  }
  return 4.0 * m * k + 4.0 * k * n + 4.0 * m * n;
}

absl::Status Workload::VerifyResidentOutputs(const Slot& slot,
                                             int64_t* verified) const {
  for (size_t i = 0; i < slot.resident_outputs.size(); ++i) {
    if (!slot.resident_outputs[i]) continue;
    const absl::StatusOr<Matrix> c =
        client_->Download(slot.resident_outputs[i]);
    if (!c.ok()) return c.status();
    const Product& product = products_[i];
    const client::ProductCheck check(
        {.a = product.a.view(),
         .b = product.b.view(),
         .transpose_a = line_.bench.transpose_a,
         .transpose_b = line_.bench.transpose_b,
         .precision = line_.precision,
         .size = {product.shape.m, product.shape.n, product.shape.k}},
        std::random_device{}());
    absl::Status status = check.Check(c->view());
    if (!status.ok()) return status;
    ++*verified;
  }
  return absl::OkStatus();
}

}  // namespace gemmd::gemmctl
