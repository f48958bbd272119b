// One product of the user's, whatever it takes.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/call.h"
#include "client/lent_memory.h"
#include "client/operation.h"
#include "client/product_check.h"
#include "client/sent_resources.h"
#include "client/session.h"
#include "client/sgemm_check.h"
#include "gemmd/sgemm.h"

namespace gemmd::client {

// Mostly a product is one request and one answer. Where it would be too large
// for that, its operands become resident for its time, largest first, and its
// answer too; where the server has lost a resident operand that has a source,
// it is uploaded again.
//
// Thread-compatible. Session and operation outlive it.
class Product {
 public:
  Product(Session* session, const SgemmCall& call, Operation* operation);

  // Checks the call and settles what must not change between tries. Before all
  // others.
  absl::Status Prepare();

  // Whether one request will do, as far as can be told without asking.
  bool IsOneRequest() const;

  // Whether that is small both ways, little work, touches no shared memory and
  // leaves nothing on the server, so that it may go as an item of a stream.
  bool IsSmall() const;

  // That request, to Sgemm.
  grpc::ByteBuffer Encode(LentMemory* lent);
  Call::Parts CallParts();  // with it

  // What its answer says; verified, if it is this one's turn.
  absl::StatusOr<SgemmAnswer> Decode(grpc::ByteBuffer response, int attempts);

  // Whether Run may get further than a request that ended so.
  bool MayRestore(const absl::Status& status) const;

  // Everything, on the caller's thread. After Prepare, and maybe after one
  // request, which ended with `failed`.
  absl::StatusOr<SgemmAnswer> Run(absl::Status failed = absl::OkStatus());

 private:
  // A handle of a matrix that the product makes on the server.
  ResidentMatrix NewMatrix(std::string id, int64_t rows, int64_t cols,
                           bool owned);
  absl::Duration TemporaryTtl() const;

  // The product goes to a name that may be one of its own operands: run twice,
  // it is not the same as run once. The server goes by names, and so does this.
  void ChangeInPlace(const std::string& id);
  void DrawCheck();
  uint64_t InlineBytes(const Operand& x) const;
  uint64_t LargestMessage() const;
  bool IsOutputShared() const;
  bool IsAnyShared() const;
  // C := alpha A B + beta C where C is shared memory: run twice, it adds twice.
  bool AddsToSharedMemory() const;
  absl::Status Fit();
  absl::Status MakeResident(Operand* operand);
  absl::StatusOr<SgemmAnswer> SendOnce();
  absl::Status FetchAnswer(SgemmAnswer* answer);
  absl::Status Verify(SgemmAnswer* answer);

  Session* const session_;
  Operation* const operation_;
  SgemmCall call_;  // as it is sent
  ProductSize size_;
  MutableMatrixView output_;  // the caller's, or none
  ResidentMatrix new_output_;
  bool fetch_output_ = false;  // new_output_ is for us, not for the caller
  std::optional<ProductCheck> check_;
  SentResources sent_;  // by the last try
};

}  // namespace gemmd::client
