#include "server/rpc/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "server/auth/tls_rotation.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

// gRPC's C++ credentials hold one certificate for ever, or follow files one by
// one and so take a certificate with another's key. Its C ones ask before each
// handshake, which is what TlsRotation wants.
class RotatingTls final : public grpc::ServerCredentials {
 public:
  RotatingTls(const TlsFiles& files, TlsContents first)
      : rotation_(files, std::move(first)) {
    const auto clients =
        files.client_ca.empty()
            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            clients, &RotatingTls::Fetch, this));
  }
  ~RotatingTls() override { grpc_server_credentials_release(credentials_); }

  // Tokens are looked at by the calls themselves.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Before each handshake, and once when the port is added.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<RotatingTls*>(self)->FetchNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchNew(
      grpc_ssl_server_certificate_config** config) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (given_ && !LookForNew()) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    given_ = true;
    const TlsContents& contents = rotation_.current();
    // gRPC wants roots in any case; they are not looked at where no client is
    // asked for a certificate.
    const std::string& roots =
        contents.client_ca.empty() ? contents.certificate : contents.client_ca;
    const grpc_ssl_pem_key_cert_pair pair = {contents.key.c_str(),
                                             contents.certificate.c_str()};
    *config =
        grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  bool LookForNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::StatusOr<bool> changed =
        rotation_.Look(MonotonicClock::now(), absl::Now());
    if (!changed.ok()) {
      Log(LogLevel::kWarn,
          "the TLS files cannot be used; connections get the last good ones",
          {{"reason", std::string(changed.status().message())}});
      return false;
    }
    if (*changed) Log(LogLevel::kInfo, "new TLS files taken");
    return *changed;
  }

  grpc_server_credentials* credentials_;  // constant after construction

  Mutex mu_;
  TlsRotation rotation_ ABSL_GUARDED_BY(mu_);
  bool given_ ABSL_GUARDED_BY(mu_) = false;  // the first contents
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureServerCredentials();
  absl::StatusOr<TlsContents> first = ReadTlsFiles(files, absl::Now());
  if (!first.ok()) return first.status();
  return std::make_shared<RotatingTls>(files, *std::move(first));
}

}  // namespace gemmd
