// Matrices that stay on the server, so that a product sends only what is new.
//
//   auto w = client->Upload(weights.view());             // once
//   auto y = client->Sgemm({.a = x.view(), .b = *w});    // as often as wanted

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gemmd/matrix.h"

namespace gemmd {

namespace client {
class Product;  // the library's own
class Residence;
}  // namespace client

// How Client::Upload goes about it.
struct UploadOptions {
  // At most 128 of [A-Za-z0-9._-]; empty: the library draws 128 random bits.
  // ALREADY_EXISTS when it names other numbers of this client's.
  std::string id = {};

  // How long the server keeps it after its last use; absent: the server's
  // --matrix-ttl.
  std::optional<absl::Duration> ttl = {};

  // A promise: the memory of the source lives as long as the handle and what is
  // computed with it, and its numbers stay as they are. With it the library
  // uploads the matrix again, by itself, when the server says that it has it no
  // more (it was started anew, needed the room, or is another replica), and can
  // verify products with it (ClientOptions::verify_fraction). Without it such a
  // product ends with NOT_FOUND.
  bool source_lives = false;

  // Tells the server the SHA-256 of the matrix first. What this client holds
  // there already is then not sent again, and what is sent is checked when it
  // has come. Costs one pass over the matrix, on several cores if it is large.
  bool digest = true;

  // From the call to its end, retries included; absent: ClientOptions::timeout.
  std::optional<absl::Duration> timeout = {};
};

// A matrix on the server. An operand of SgemmCall, or its output.
//
// Owning: when the last of the handle and of the calls that use it is gone, the
// server is told to drop the matrix, without waiting for its answer: the
// client's destructor gives that a second. Use Release to leave it there.
//
// Outliving the client: a handle does nothing then, and its matrix is left to
// the server's ttl.
//
// Thread-safety: const methods, and calls that use the matrix, from any thread
// at once. Products that write one matrix take effect one after another.
class ResidentMatrix {
 public:
  ResidentMatrix() = default;  // refers to none
  ResidentMatrix(ResidentMatrix&&) = default;
  ResidentMatrix& operator=(ResidentMatrix&&) = default;

  // False for one that was made so, moved from, or released.
  explicit operator bool() const { return residence_ != nullptr; }

  const std::string& id() const;  // of one that refers to a matrix
  int64_t rows() const;
  int64_t cols() const;

  // Drops the matrix now and waits for the answer. OK too when the server does
  // not have it any more.
  absl::Status Delete();

  // Leaves the matrix on the server and returns its id.
  std::string Release();

  // What the server says about a matrix.
  struct Info {
    std::string id;
    int64_t rows = 0;
    int64_t cols = 0;
    bool complete = false;          // every row has come
    uint64_t device_bytes = 0;      // derived forms included
    std::vector<uint32_t> devices;  // that hold it: ServerInfo::devices
    absl::Duration expires_in;      // if it is not used
    uint64_t uses = 0;              // by products and transfers, now
  };

 private:
  friend class Client;
  friend class client::Product;
  friend class Operand;
  explicit ResidentMatrix(std::shared_ptr<client::Residence> residence);

  std::shared_ptr<client::Residence> residence_;
};

// One operand of a product: a matrix in the caller's memory, or one that is on
// the server. Both turn into an operand by themselves.
class Operand {
 public:
  Operand() = default;             // none: 0 x 0
  Operand(const MatrixView& view)  // NOLINT: meant to be implicit
      : view_(view) {}
  Operand(const MutableMatrixView& view)  // NOLINT: likewise
      : view_(view) {}
  Operand(const float* data, int64_t rows, int64_t cols,
          int64_t leading_dimension = 0)
      : view_{data, rows, cols, leading_dimension} {}
  Operand(const ResidentMatrix& matrix);  // NOLINT: likewise

  int64_t rows() const { return view_.rows; }  // of the matrix as stored
  int64_t cols() const { return view_.cols; }

  // Where the numbers are in memory; without data for one on the server.
  const MatrixView& view() const { return view_; }

  // The library's own. Null for one in memory.
  const std::shared_ptr<client::Residence>& residence() const {
    return residence_;
  }

 private:
  MatrixView view_;
  std::shared_ptr<client::Residence> residence_;
};

}  // namespace gemmd
