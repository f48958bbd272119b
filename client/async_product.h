// A product that nobody waits for.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/operation.h"
#include "client/product.h"
#include "client/product_stream.h"
#include "client/session.h"
#include "gemmd/sgemm.h"

namespace gemmd::client {

// Owns itself from Begin until `done` has been called. Its thread is a stream's
// or the call queue's while it is one request, and one of the background's when
// it takes more.
class AsyncProduct : public std::enable_shared_from_this<AsyncProduct> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)>;

  // The session outlives it.
  AsyncProduct(Session* session, const SgemmCall& call,
               std::shared_ptr<Operation> operation, Done done);

  void Begin();

 private:
  // As an item of a stream, or as a call, maybe after an item that failed.
  void BeginItem(ProductStream* stream);
  void ItemEnded(absl::StatusOr<grpc::ByteBuffer> result);
  void BeginRequest(int attempts = 0,
                    absl::Duration delay = absl::ZeroDuration());
  void RequestEnded(absl::StatusOr<grpc::ByteBuffer> result, int attempts);
  void Ended(absl::StatusOr<SgemmAnswer> answer);

  Session* const session_;
  const std::shared_ptr<Operation> operation_;
  std::optional<Product> product_;  // until it has ended
  Done done_;
  std::optional<Operation::Step> request_;
};

}  // namespace gemmd::client
