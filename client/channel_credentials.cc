#include "client/channel_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "gemmd/tls.h"

namespace gemmd::client {
namespace {

using Watcher = grpc::experimental::FileWatcherCertificateProvider;

constexpr unsigned int kRefreshSeconds = 2;

std::shared_ptr<Watcher> WatchFiles(const TlsOptions& tls) {
  if (tls.certificate.empty()) {
    return std::make_shared<Watcher>(tls.root_certificates, kRefreshSeconds);
  }
  return std::make_shared<Watcher>(tls.key, tls.certificate,
                                   tls.root_certificates, kRefreshSeconds);
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(
    const ClientOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  const TlsOptions& tls = *options.tls;
  if (tls.root_certificates.empty() && tls.certificate.empty()) {
    return grpc::SslCredentials({});  // nothing to watch
  }
  grpc::experimental::TlsChannelCredentialsOptions watched;
  watched.set_certificate_provider(WatchFiles(tls));
  if (!tls.root_certificates.empty()) watched.watch_root_certs();
  if (!tls.certificate.empty()) watched.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(watched);
}

}  // namespace gemmd::client
