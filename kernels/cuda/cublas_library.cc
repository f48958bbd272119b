#include "kernels/cuda/cublas_library.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd {
namespace {

// Newest first: a library of this build's headers or one whose functions used
// here are the same.
constexpr std::array<const char*, 2> kNames = {"libcublas.so.13",
                                               "libcublas.so.12"};
// "": where the loader looks by itself (LD_LIBRARY_PATH, ldconfig).
constexpr std::array<const char*, 3> kFolders = {"", "/usr/local/cuda/lib64/",
                                                 "/opt/cuda/lib64/"};

// FP32 here means binary32 FMA. With these variables a user's shell can make
// cuBLAS compute FP32 in TF32 (the first) or by emulation (the others) under
// every program, against the promise of the wire; so they do not hold here.
constexpr std::array<const char*, 3> kPrecisionVariables = {
    "NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY"};

void* Open(std::string& tried) {
  for (const char* name : kNames) {
    for (const char* folder : kFolders) {
      const std::string path = absl::StrCat(folder, name);
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        return library;
      }
      absl::StrAppend(&tried, tried.empty() ? "" : ", ", path);
    }
  }
  return nullptr;
}

absl::Status CublasStatus(cublasStatus_t status, absl::string_view api) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(api, ": cublasStatus_t ", static_cast<int>(status)));
}

}  // namespace

struct CublasLibrary::Functions {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasSgemm_v2_64) sgemm;
  decltype(&cublasGetProperty) get_property;
};

absl::StatusOr<const CublasLibrary*> CublasLibrary::Load() {
  std::string tried;
  void* library = Open(tried);
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("cuBLAS was not found; tried ", tried,
                     ". Install it, or name its folder in LD_LIBRARY_PATH"));
  }
  auto functions = std::make_unique<Functions>();
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) absl::StrAppend(&missing, " ", name);
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(functions->create, "cublasCreate_v2");
  find(functions->destroy, "cublasDestroy_v2");
  find(functions->set_stream, "cublasSetStream_v2");
  find(functions->set_workspace, "cublasSetWorkspace_v2");
  find(functions->set_math_mode, "cublasSetMathMode");
  find(functions->sgemm, "cublasSgemm_v2_64");
  find(functions->get_property, "cublasGetProperty");
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat("the cuBLAS found lacks", missing,
                                            "; version 12 or newer is needed"));
  }
  for (const char* variable : kPrecisionVariables) {
    if (std::getenv(variable) != nullptr) unsetenv(variable);
  }
  std::array<int, 3> version{};
  functions->get_property(MAJOR_VERSION, &version[0]);
  functions->get_property(MINOR_VERSION, &version[1]);
  functions->get_property(PATCH_LEVEL, &version[2]);
  return new CublasLibrary(functions.release(), absl::StrJoin(version, "."));
}

absl::StatusOr<const CublasLibrary*> CublasLibrary::Get() {
  // Lives as long as the process: handles may outlast any owner of it.
  static const auto& library =
      *new absl::StatusOr<const CublasLibrary*>(Load());
  return library;
}

absl::StatusOr<CublasHandle> CublasLibrary::CreateHandle(
    CUstream_st* stream, void* workspace, size_t workspace_bytes) const {
  cublasHandle_t raw = nullptr;
  absl::Status status = CublasStatus(functions_->create(&raw), "cublasCreate");
  if (!status.ok()) return status;
  CublasHandle handle(raw, [](cublasContext* h) -> int {
    return (*Get())->functions_->destroy(h);
  });
  status.Update(
      CublasStatus(functions_->set_stream(raw, stream), "cublasSetStream"));
  // After the stream: setting that puts back cuBLAS's own workspace.
  status.Update(
      CublasStatus(functions_->set_workspace(raw, workspace, workspace_bytes),
                   "cublasSetWorkspace"));
  status.Update(
      CublasStatus(functions_->set_math_mode(raw, CUBLAS_PEDANTIC_MATH),
                   "cublasSetMathMode"));
  if (!status.ok()) return status;
  return handle;
}

absl::Status CublasLibrary::Sgemm(cublasContext* handle,
                                  const SgemmArgs& args) const {
  // Column-major, a row-major C is C^T = op(B)^T op(A)^T.
  const GemmShape& s = args.shape;
  return CublasStatus(
      functions_->sgemm(handle, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                        s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, s.n, s.m,
                        s.k, &args.alpha, args.b, args.ldb, args.a, args.lda,
                        &args.beta, args.c, args.ldc),
      "cublasSgemm");
}

}  // namespace gemmd
