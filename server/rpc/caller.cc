#include "server/rpc/caller.h"

#include <grpcpp/security/auth_context.h>

#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/rpc/client_identity.h"

namespace gemmd {
namespace {

constexpr absl::string_view kAuthorization = "authorization";
constexpr absl::string_view kBearer = "Bearer ";

absl::string_view View(grpc::string_ref text) {
  return {text.data(), text.size()};
}

// The names in the certificate that the handshake verified, the subject
// alternative ones first.
std::vector<absl::string_view> CertificateNames(
    const grpc::AuthContext& authenticated) {
  std::vector<absl::string_view> names;
  if (!authenticated.IsPeerAuthenticated()) return names;
  for (const char* property :
       {"x509_subject_alternative_name", "x509_common_name"}) {
    for (const grpc::string_ref& name :
         authenticated.FindPropertyValues(property)) {
      names.push_back(View(name));
    }
  }
  return names;
}

absl::StatusOr<Principal> Authenticate(
    const grpc::ServerContext& context, const AccessList& access,
    const std::vector<absl::string_view>& names) {
  const auto [begin, end] = context.client_metadata().equal_range(
      grpc::string_ref(kAuthorization.data(), kAuthorization.size()));
  if (begin == end) {
    if (!names.empty()) return access.ByCertificate(names);
    return absl::UnauthenticatedError(
        "this server wants a token: the metadata \"authorization\" with "
        "\"Bearer TOKEN\", or a client certificate that it knows");
  }
  absl::string_view token = View(begin->second);
  if (std::next(begin) != end || !absl::ConsumePrefix(&token, kBearer)) {
    return absl::UnauthenticatedError(
        "the metadata \"authorization\" is not one \"Bearer TOKEN\"");
  }
  return access.ByToken(token);
}

}  // namespace

absl::StatusOr<Caller> IdentifyCaller(const grpc::ServerContext& context,
                                      const AccessList* access) {
  const auto authenticated = context.auth_context();
  const std::vector<absl::string_view> names = CertificateNames(*authenticated);
  if (access != nullptr) {
    absl::StatusOr<Principal> principal = Authenticate(context, *access, names);
    if (!principal.ok()) return principal.status();
    return Caller{.client = std::move(principal->name),
                  .roles = principal->roles};
  }
  if (!names.empty()) {
    return Caller{.client = std::string(names.front()), .roles = Roles::All()};
  }
  absl::StatusOr<std::string> client = ClientIdentity(context);
  if (!client.ok()) return client.status();
  return Caller{.client = *std::move(client), .roles = Roles::All()};
}

absl::Status CheckRole(absl::string_view client, Roles roles, Role wanted) {
  if (roles.Has(wanted)) return absl::OkStatus();
  std::vector<absl::string_view> has;
  for (const Role role : {Role::kInfo, Role::kCompute}) {
    if (roles.Has(role)) has.push_back(RoleName(role));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      client, " may not do this: it has the role ", absl::StrJoin(has, ", "),
      " and lacks the role ", RoleName(wanted)));
}

}  // namespace gemmd
