// cuBLAS, loaded when the program runs: a machine without it starts all the
// same, and says what is missing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/sgemm.h"

namespace gemmd {

// What a handle's workspace should have on Hopper, by cuBLAS's documentation.
constexpr size_t kCublasWorkspaceBytes = size_t{32} << 20;

// A cuBLAS handle bound to one stream and one workspace. Move-only owner.
//
// Two streams never share one: cuBLAS gives the same bits again only where each
// stream has its own handle and workspace.
class CublasHandle {
 public:
  CublasHandle() = default;
  CublasHandle(cublasContext* handle, int (*destroy)(cublasContext*))
      : handle_(handle), destroy_(destroy) {}
  CublasHandle(CublasHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        destroy_(other.destroy_) {}
  CublasHandle& operator=(CublasHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~CublasHandle() {
    if (handle_ != nullptr) destroy_(handle_);
  }

  cublasContext* get() const { return handle_; }

 private:
  cublasContext* handle_ = nullptr;
  int (*destroy_)(cublasContext*) = nullptr;
};

// The functions of cuBLAS that the project calls.
//
// Thread-safe. A handle is used by one thread at a time.
class CublasLibrary {
 public:
  // The process's cuBLAS. The first call loads it: call it before there are
  // other threads, since it may change the environment (cublas_library.cc says
  // which variables and why). NOT_FOUND, with what was tried (for the log),
  // where there is none.
  static absl::StatusOr<const CublasLibrary*> Get();

  // A handle of the current device for FP32 arithmetic, never TF32, on `stream`
  // with `workspace` (256-byte aligned device memory of this stream alone,
  // which outlives the handle).
  absl::StatusOr<CublasHandle> CreateHandle(CUstream_st* stream,
                                            void* workspace,
                                            size_t workspace_bytes) const;

  // cublasSgemm for one product with 64-bit sizes. Asynchronous on the handle's
  // stream. INTERNAL if cuBLAS refuses.
  absl::Status Sgemm(cublasContext* handle, const SgemmArgs& args) const;

  const std::string& version() const { return version_; }  // "13.1.0"

 private:
  struct Functions;
  CublasLibrary(const Functions* functions, std::string version)
      : functions_(functions), version_(std::move(version)) {}
  static absl::StatusOr<const CublasLibrary*> Load();

  const Functions* const functions_;
  const std::string version_;
};

}  // namespace gemmd
