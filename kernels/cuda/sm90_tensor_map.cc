#include "kernels/cuda/sm90_tensor_map.h"

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's own function, looked up so that the program starts without a
// driver; null where there is none.
Encode FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(
      "cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
    return reinterpret_cast<Encode>(function);
  }
  cudaGetLastError();  // or the next launch would report it
  return nullptr;
}

CUtensorMapSwizzle SwizzleOf(int bytes) {
  switch (bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace

absl::StatusOr<CUtensorMap> MakeTensorMap(const TensorMapSpec& spec) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) {
    return absl::InternalError(
        "the CUDA driver has no cuTensorMapEncodeTiled; 12.0 or newer has");
  }
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(spec.columns),
                              static_cast<cuuint64_t>(spec.rows)};
  const cuuint64_t strides[] = {
      static_cast<cuuint64_t>(spec.leading_dimension) * spec.element_bytes};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(spec.box_columns),
                            static_cast<cuuint32_t>(spec.box_rows)};
  const cuuint32_t every_element[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, spec.type, 2, const_cast<void*>(spec.base), sizes, strides,
             box, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE,
             SwizzleOf(spec.swizzle_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return absl::InternalError(absl::StrCat(
      "cuTensorMapEncodeTiled: error ", static_cast<int>(result), " for ",
      spec.rows, " x ", spec.columns, " elements of ", spec.element_bytes,
      " bytes, leading dimension ", spec.leading_dimension));
}

}  // namespace gemmd
