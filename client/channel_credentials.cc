#include "client/channel_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <vector>

namespace gemmd::client {
namespace {

using Certificates = grpc::experimental::StaticDataCertificateProvider;

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> NewTlsCredentials(
    const TlsContents& contents) {
  const std::string& roots = contents.root_certificates;
  if (roots.empty() && contents.certificate.empty()) {
    return grpc::SslCredentials({});
  }
  std::vector<grpc::experimental::IdentityKeyCertPair> own;
  if (!contents.certificate.empty()) {
    own.push_back({contents.key, contents.certificate});
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<Certificates>(roots, own));
  if (!roots.empty()) options.watch_root_certs();
  if (!own.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace gemmd::client
