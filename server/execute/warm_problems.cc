#include "server/execute/warm_problems.h"

namespace gemmd {

std::vector<SgemmArgs> WarmProblems(std::span<const int64_t> sizes) {
  std::vector<SgemmArgs> problems;
  for (const int64_t size : sizes) {
    for (const int64_t m : {int64_t{1}, size}) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          for (const float beta : {0.0f, 1.0f}) {
            SgemmArgs args;
            args.shape = {m, size, size, transpose_a, transpose_b};
            args.beta = beta;
            args.lda = StoredColsA(args.shape);
            args.ldb = StoredColsB(args.shape);
            args.ldc = size;
            problems.push_back(args);
          }
        }
      }
    }
  }
  return problems;
}

}  // namespace gemmd
