#include "client/identity.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd::client {

Identity::Identity(const ClientOptions& options, std::string id)
    : id_(std::move(id)),
      token_(options.token),
      file_(options.token_file.empty()
                ? nullptr
                : std::make_unique<TokenFile>(options.token_file)) {}

void Identity::AddTo(grpc::ClientContext* context) const {
  context->AddMetadata("gemmd-client", id_);
  const std::string token = file_ != nullptr ? file_->Get() : token_;
  if (!token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

}  // namespace gemmd::client
