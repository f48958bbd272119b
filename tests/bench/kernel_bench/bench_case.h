// What is measured: shapes, and how the command line and the tables name them.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/sgemm.h"

namespace gemmd {

// `batch` products of one shape in one Launch, packed operands.
struct BenchCase {
  GemmShape shape;
  int batch = 1;

  double flops() const { return batch * shape.flops(); }
};

// "NN", "NT", "TN" or "TT", A first.
std::string TransposeName(const GemmShape& shape);

// "1024x512x256", with ":TN" and "*64" after it for transposes and a batch.
std::string ToString(const BenchCase& c);

// Reads what ToString writes. INVALID_ARGUMENT, showing the form, otherwise.
absl::StatusOr<BenchCase> ParseBenchCase(absl::string_view text);

// The tutorial's sizes, squares, the shapes that users have, all transposes and
// batches of small products.
std::vector<BenchCase> DefaultBenchCases();

// The smallest power of two of bytes, at most 256, that every row of every
// packed operand starts at.
int AlignmentBytes(const GemmShape& shape);

}  // namespace gemmd
