#include "server/rpc/client_identity.h"

#include <openssl/sha.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

constexpr absl::string_view kKey = "gemmd-client";
constexpr size_t kDigits = 32;
constexpr size_t kLoggedBytes = 4;  // of a digest

bool IsIdentity(absl::string_view value) {
  return value.size() == kDigits &&
         std::all_of(value.begin(), value.end(),
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace

absl::StatusOr<std::string> ClientIdentity(const grpc::ServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(
      grpc::string_ref(kKey.data(), kKey.size()));
  if (begin == end) return "";
  const absl::string_view value(begin->second.data(), begin->second.size());
  if (std::next(begin) != end || !IsIdentity(value)) {
    return InvalidFieldError(
        kKey,
        absl::StrCat("the metadata ", kKey, " has ", std::distance(begin, end),
                     " values, the first of ", value.size(), " bytes; one of ",
                     kDigits, " hex digits is wanted"));
  }
  return absl::AsciiStrToLower(value);
}

std::string NameInLog(const std::string& client) {
  if (!IsIdentity(client)) return client;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(client.data()), client.size(),
         digest);
  return absl::StrCat("sha256:",
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<char*>(digest), kLoggedBytes)));
}

bool IsLocal(const grpc::ServerContext& context) {
  return absl::StartsWith(context.peer(), "unix:");
}

}  // namespace gemmd
