// Measured times of kernels over a grid of shapes, and what they say about any
// other shape. `auto` goes by such a table where there is one for the device.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/sgemm.h"

namespace gemmd {

// What a measurement holds for. One line each, no line breaks within.
struct SelectionStamp {
  std::string gpu;     // "NVIDIA H200"
  std::string driver;  // "580.159.04"
  std::string cuda;    // of the toolkit the program was built with: "13.0"
  std::string cublas;  // "13.1.0" or "none"
  std::string build;   // the program's version and revision

  friend bool operator==(const SelectionStamp&,
                         const SelectionStamp&) = default;
};

// The kinds of request that are measured apart: a row of the table for each of
// the four transposes, with operands that are all aligned (16 bytes, base and
// rows) or not.
struct SelectionClass {
  bool transpose_a = false;
  bool transpose_b = false;
  bool aligned = true;

  static constexpr int kCount = 8;
  int index() const { return transpose_a + 2 * transpose_b + 4 * !aligned; }
  static SelectionClass OfIndex(int index) {
    return {(index & 1) != 0, (index & 2) != 0, (index & 4) == 0};
  }
  std::string Name() const;  // "NT aligned"
};
SelectionClass ClassOf(const SgemmArgs& args);

// The shapes measured: every m with every n and k, each list increasing, with
// two values at least.
struct SelectionGrid {
  std::vector<int64_t> m;
  std::vector<int64_t> n;
  std::vector<int64_t> k;

  size_t size() const { return m.size() * n.size() * k.size(); }
};

// The text form, as a file has it:
//
//   gemmd selection table 1
//   gpu: NVIDIA H200
//   driver: 580.159.04
//   cuda: 13.0
//   cublas: 13.1.0
//   build: 0.1.0 1f2e3d4c5b6a
//   m: 1 16 64
//   n: 16 64
//   k: 16 256
//   kernels: small_tiles cublas
//   NN aligned 1 16: 2.1 2.2 | 4.0 3.1      for each k, us of each kernel,
//   NN aligned 1 64: 2.2 2.2 | 4.1 -        "-" where it cannot, errs or is
//   ...                                     far behind
//
// with a line for each class, m and n. Thread-safety: immutable.
class SelectionTable {
 public:
  // `us` has a value for each class (by index), m, n, k and kernel, the last
  // running fastest; infinity: "-".
  SelectionTable(SelectionStamp stamp, SelectionGrid grid,
                 std::vector<std::string> kernels, std::vector<float> us);

  // INVALID_ARGUMENT, naming the line, for any other text.
  static absl::StatusOr<SelectionTable> Parse(absl::string_view text);
  std::string ToText() const;

  const SelectionStamp& stamp() const { return stamp_; }
  const SelectionGrid& grid() const { return grid_; }
  const std::vector<std::string>& kernels() const { return kernels_; }

  // The times at a shape of the grid, in the order of kernels().
  std::span<const float> Measured(SelectionClass c, int64_t m, int64_t n,
                                  int64_t k) const;

  // Microseconds that each kernel should take for the request, in the order of
  // kernels(); infinity where the table does not know. Follows from shape,
  // leading dimensions and alignment alone.
  //
  // Between the shapes measured, times are interpolated linearly in m, n and k,
  // beyond the largest they are continued, below the smallest they stay. m and
  // n count in whole tiles (kTile), as most kernels compute them, the grid's
  // too, unless two of its sizes would be one.
  void Predict(const SgemmArgs& args, std::span<double> us) const;

 private:
  std::span<const float> Times(int class_index, size_t m, size_t n,
                               size_t k) const;

  SelectionStamp stamp_;
  SelectionGrid grid_;
  std::vector<std::string> kernels_;
  std::vector<float> us_;
  // Where the grid's sizes lie.
  std::vector<double> places_m_;
  std::vector<double> places_n_;
  std::vector<double> places_k_;
};

// The table that ships with the project for that GPU; null where
// there is none.
std::shared_ptr<const SelectionTable> ShippedTable(absl::string_view gpu);

}  // namespace gemmd
