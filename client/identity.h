// Who this client is to the server.

#pragma once

#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/token_file.h"
#include "gemmd/client.h"

namespace gemmd::client {

// What every call says of its caller: the metadata `gemmd-client`, and the
// bearer token if there is one. Whatever makes a grpc::ClientContext asks here.
//
// Thread-safe.
class Identity {
 public:
  // Needs: CheckOptions(options) is OK.
  Identity(const ClientOptions& options, std::string id);

  const std::string& id() const { return id_; }

  void AddTo(grpc::ClientContext* context) const;

 private:
  const std::string id_;
  const std::string token_;                // or
  const std::unique_ptr<TokenFile> file_;  // or null
};

}  // namespace gemmd::client
