// Matrices as the client library sees them: views of the caller's memory, and a
// matrix that owns its numbers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gemmd {

// A matrix in somebody else's memory, read only. Row-major: element (i, j) is
// data[i * leading_dimension + j].
struct MatrixView {
  const float* data = nullptr;  // may be null when rows or cols is 0
  int64_t rows = 0;             // of the matrix as stored
  int64_t cols = 0;
  int64_t leading_dimension = 0;  // in elements; 0: cols, the rows are packed
};

// The same, to be written to.
struct MutableMatrixView {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t leading_dimension = 0;

  operator MatrixView() const {  // NOLINT: meant to be implicit
    return {data, rows, cols, leading_dimension};
  }
};

// A packed row-major matrix that owns its numbers. Moves, does not copy.
class Matrix {
 public:
  Matrix() = default;

  // rows x cols numbers with indeterminate values: write before you read. Both
  // sizes are >= 0 and rows * cols * 4 fits in memory.
  Matrix(int64_t rows, int64_t cols)
      : data_(std::make_unique_for_overwrite<float[]>(
            static_cast<size_t>(rows) * static_cast<size_t>(cols))),
        rows_(rows),
        cols_(cols) {}

  Matrix(Matrix&&) = default;
  Matrix& operator=(Matrix&&) = default;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }

  float& operator()(int64_t i, int64_t j) { return data_[i * cols_ + j]; }
  float operator()(int64_t i, int64_t j) const { return data_[i * cols_ + j]; }

  MatrixView view() const { return {data_.get(), rows_, cols_, cols_}; }
  MutableMatrixView mutable_view() {
    return {data_.get(), rows_, cols_, cols_};
  }

 private:
  std::unique_ptr<float[]> data_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

}  // namespace gemmd
