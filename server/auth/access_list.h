// Who may call the server, and what they may do: bearer tokens, kept as salted
// hashes, and names of client certificates.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/auth/roles.h"

namespace gemmd {

// Somebody the server knows.
struct Principal {
  std::string name;  // its quotas, matrices and log lines go by it
  Roles roles;
};

// The entries of an access file. Text, an entry a line; `#` begins a comment:
//
//   # name             roles         credential
//   trainer            compute,info  sha256:0f...(32 hex):9a...(64 hex)
//   batch.example.com  compute       certificate
//
// A name is 1 to 128 of [A-Za-z0-9._:/@-] and stands once. `sha256:SALT:HASH`
// has HASH = SHA-256(SALT bytes, then the token's bytes); a token is
// "NAME.SECRET" with 16 to 512 printable characters in all. Secrets are random
// (SECURITY.md mints 256 bits), so that one SHA-256 keeps them.
// `certificate` is the name in a client certificate that --tls-client-ca
// vouches for: a subject alternative name, else the common name.
//
// Thread-safety: immutable after Parse.
class AccessList {
 public:
  // INVALID_ARGUMENT with the line's number, what was got and what is wanted;
  // never with a hash. FAILED_PRECONDITION for a file without entries, which
  // would lock everybody out.
  static absl::StatusOr<AccessList> Parse(absl::string_view text);

  // Whose the token is. UNAUTHENTICATED, the same for an unknown name and for
  // a wrong secret; takes equally long for both, whatever the secret's bytes.
  absl::StatusOr<Principal> ByToken(absl::string_view token) const;

  // Whose certificate it is: the first of its names that is listed.
  // UNAUTHENTICATED when none is.
  absl::StatusOr<Principal> ByCertificate(
      std::span<const absl::string_view> names) const;

  size_t size() const { return entries_.size(); }

 private:
  using Hash = std::array<uint8_t, 32>;
  using Salt = std::array<uint8_t, 16>;
  struct Entry {
    Roles roles;
    bool certificate = false;
    Salt salt = {};
    Hash hash = {};
  };

  static absl::StatusOr<Hash> HashOf(const Salt& salt, absl::string_view token);
  absl::Status AddLine(absl::string_view line);

  absl::flat_hash_map<std::string, Entry> entries_;
};

}  // namespace gemmd
