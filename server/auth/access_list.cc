#include "server/auth/access_list.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxTokenBytes = 512;

absl::Status UnknownCaller(absl::string_view what) {
  return absl::UnauthenticatedError(
      absl::StrCat("the ", what, " is not one that this server accepts"));
}

bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("._:/@-", absl::string_view(&c, 1));
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), IsNameByte);
}

absl::StatusOr<Roles> ParseRoles(absl::string_view text) {
  Roles roles;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (part == RoleName(Role::kInfo)) {
      roles.Add(Role::kInfo);
    } else if (part == RoleName(Role::kCompute)) {
      roles.Add(Role::kCompute);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", absl::CHexEscape(part),
                       "\" is not a role; info and compute are"));
    }
  }
  return roles;
}

// `hex` as exactly the bytes of `*bytes`.
template <size_t kSize>
bool ParseHex(absl::string_view hex, std::array<uint8_t, kSize>* bytes) {
  const auto is_digit = [](unsigned char c) { return absl::ascii_isxdigit(c); };
  if (hex.size() != 2 * kSize ||
      !std::all_of(hex.begin(), hex.end(), is_digit)) {
    return false;
  }
  const std::string raw = absl::HexStringToBytes(hex);
  std::copy(raw.begin(), raw.end(), bytes->begin());
  return true;
}

}  // namespace

const char* RoleName(Role role) {
  return role == Role::kInfo ? "info" : "compute";
}

absl::StatusOr<AccessList> AccessList::Parse(absl::string_view text) {
  AccessList list;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (absl::Status status = list.AddLine(line); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  if (list.entries_.empty()) {
    return absl::FailedPreconditionError(
        "there is no entry, so nobody could call; an entry is a line \"NAME "
        "ROLES CREDENTIAL\" (SECURITY.md shows how to make one)");
  }
  return list;
}

absl::Status AccessList::AddLine(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        words.size(), " words; three are wanted: NAME ROLES CREDENTIAL"));
  }
  const std::string name(words[0]);
  if (!IsName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name \"", absl::CHexEscape(name), "\" has ", name.size(),
        " bytes; 1 to ", kMaxNameBytes, " of [A-Za-z0-9._:/@-] are wanted"));
  }
  Entry entry;
  const absl::StatusOr<Roles> roles = ParseRoles(words[1]);
  if (!roles.ok()) return roles.status();
  entry.roles = *roles;
  const std::vector<absl::string_view> parts = absl::StrSplit(words[2], ':');
  if (words[2] == "certificate") {
    entry.certificate = true;
  } else if (parts.size() != 3 || parts[0] != "sha256" ||
             !ParseHex(parts[1], &entry.salt) ||
             !ParseHex(parts[2], &entry.hash)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the credential of ", name,
        " is neither \"certificate\" nor \"sha256:\", 32 hex digits of salt, "
        "\":\" and 64 of hash"));
  }
  if (!entries_.try_emplace(name, entry).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name ", name, " stands twice"));
  }
  return absl::OkStatus();
}

absl::StatusOr<AccessList::Hash> AccessList::HashOf(const Salt& salt,
                                                    absl::string_view token) {
  Hash hash;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool done =
      context != nullptr &&
      EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1 &&
      EVP_DigestUpdate(context.get(), salt.data(), salt.size()) == 1 &&
      EVP_DigestUpdate(context.get(), token.data(), token.size()) == 1 &&
      EVP_DigestFinal_ex(context.get(), hash.data(), nullptr) == 1;
  if (!done) return absl::InternalError("the token could not be hashed");
  return hash;
}

absl::StatusOr<Principal> AccessList::ByToken(absl::string_view token) const {
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return UnknownCaller("token");
  }
  // A name may hold dots, a secret does not.
  const std::string name(
      token.substr(0, std::min(token.rfind('.'), token.size())));
  const auto found = entries_.find(name);
  const bool known = found != entries_.end() && !found->second.certificate;
  static const Entry kNobody;
  const Entry& entry = known ? found->second : kNobody;
  const absl::StatusOr<Hash> hash = HashOf(entry.salt, token);
  if (!hash.ok()) return hash.status();
  const bool equal =
      CRYPTO_memcmp(hash->data(), entry.hash.data(), hash->size()) == 0;
  if (!known || !equal) return UnknownCaller("token");
  return Principal{.name = name, .roles = entry.roles};
}

absl::StatusOr<Principal> AccessList::ByCertificate(
    std::span<const absl::string_view> names) const {
  for (const absl::string_view name : names) {
    const auto found = entries_.find(name);
    if (found != entries_.end() && found->second.certificate) {
      return Principal{.name = std::string(name), .roles = found->second.roles};
    }
  }
  return UnknownCaller("certificate");
}

}  // namespace gemmd
