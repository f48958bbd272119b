// A kernel's precision as the wire calls it.

#pragma once

#include "gemmd/v1/sgemm.pb.h"
#include "kernels/sgemm.h"

namespace gemmd {

inline v1::Precision ToWire(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return v1::PRECISION_FP32;
    case Precision::kFp32Emulated:
      return v1::PRECISION_FP32_EMULATED;
    case Precision::kTf32:
      return v1::PRECISION_TF32;
  }
  return v1::PRECISION_UNSPECIFIED;
}

}  // namespace gemmd
