#include "tests/bench/batch_bench/cublas_batched.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <type_traits>

namespace gemmd {
namespace {

void CheckCublas(cublasStatus_t status, const char* api) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "batch_bench: %s: cublasStatus_t %d\n", api,
               static_cast<int>(status));
  std::exit(1);
}

cublasOperation_t Operation(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <typename T>
DeviceArray<T> ToDevice(const std::vector<T>& values) {
  DeviceArray<T> copy = AllocateOnDevice<T>(values.size());
  Check(
      cudaMemcpy(const_cast<std::remove_const_t<T>*>(copy.get()), values.data(),
                 values.size() * sizeof(T), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  return copy;
}

}  // namespace

struct CublasBatched::Functions {
  decltype(&cublasSgemmStridedBatched) strided;
  decltype(&cublasSgemmGroupedBatched) grouped;
};

CublasBatched::CublasBatched(cublasContext* handle) : handle_(handle) {
  // The project has loaded the library: this is the same one.
  void* library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen("libcublas.so.13", RTLD_NOW);
  auto functions = std::make_shared<Functions>();
  const auto find = [&](auto& function, const char* name) {
    void* symbol = library == nullptr ? nullptr : dlsym(library, name);
    if (symbol == nullptr) {
      std::fprintf(stderr, "batch_bench: libcublas.so.13 lacks %s\n", name);
      std::exit(1);
    }
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(functions->strided, "cublasSgemmStridedBatched");
  find(functions->grouped, "cublasSgemmGroupedBatched");
  functions_ = std::move(functions);
}

void CublasBatched::Strided(std::span<const SgemmArgs> products) const {
  const SgemmArgs& p = products[0];
  const GemmShape& s = p.shape;
  const auto distance = [&](auto member) -> long long {
    return products.size() > 1 ? products[1].*member - p.*member : 0;
  };
  const auto size = [](int64_t x) { return static_cast<int>(x); };
  // Column-major, a row-major C is C^T = op(B)^T op(A)^T.
  CheckCublas(functions_->strided(handle_, Operation(s.transpose_b),
                                  Operation(s.transpose_a), size(s.n),
                                  size(s.m), size(s.k), &p.alpha, p.b,
                                  size(p.ldb), distance(&SgemmArgs::b), p.a,
                                  size(p.lda), distance(&SgemmArgs::a), &p.beta,
                                  p.c, size(p.ldc), distance(&SgemmArgs::c),
                                  size(static_cast<int64_t>(products.size()))),
              "cublasSgemmStridedBatched");
}

CublasBatched::Groups::Groups(std::span<const SgemmArgs> products) {
  std::vector<const float*> a, b;
  std::vector<float*> c;
  for (const SgemmArgs& p : products) {
    trans_a_.push_back(Operation(p.shape.transpose_b));
    trans_b_.push_back(Operation(p.shape.transpose_a));
    m_.push_back(static_cast<int>(p.shape.n));
    n_.push_back(static_cast<int>(p.shape.m));
    k_.push_back(static_cast<int>(p.shape.k));
    lda_.push_back(static_cast<int>(p.ldb));
    ldb_.push_back(static_cast<int>(p.lda));
    ldc_.push_back(static_cast<int>(p.ldc));
    one_.push_back(1);
    alpha_.push_back(p.alpha);
    beta_.push_back(p.beta);
    a.push_back(p.b);
    b.push_back(p.a);
    c.push_back(p.c);
  }
  a_ = ToDevice(a);
  b_ = ToDevice(b);
  c_ = ToDevice(c);
}

void CublasBatched::Grouped(const Groups& g) const {
  static_assert(sizeof(cublasOperation_t) == sizeof(int));
  const auto operations = [](const std::vector<int>& x) {
    return reinterpret_cast<const cublasOperation_t*>(x.data());
  };
  CheckCublas(
      functions_->grouped(
          handle_, operations(g.trans_a_), operations(g.trans_b_), g.m_.data(),
          g.n_.data(), g.k_.data(), g.alpha_.data(), g.a_.get(), g.lda_.data(),
          g.b_.get(), g.ldb_.data(), g.beta_.data(), g.c_.get(), g.ldc_.data(),
          static_cast<int>(g.m_.size()), g.one_.data()),
      "cublasSgemmGroupedBatched");
}

}  // namespace gemmd
