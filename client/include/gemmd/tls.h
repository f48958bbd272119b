// How a client knows its server, and how it shows who it is itself.

#pragma once

#include <string>

namespace gemmd {

// Files in PEM. They are looked at when the client is made, and then by calls,
// once a second at most: where they hold something new, calls go over to new
// connections. They may be replaced one by one: until certificate and key fit
// together, and while a file is half written, what they held last counts.
struct TlsOptions {
  // Whom the server's certificate must come from. Empty: the roots that the
  // system trusts.
  std::string root_certificates = {};

  // The client's own certificate, its chain after it, and its private key,
  // without a password; for servers that ask (mTLS). Both or none.
  std::string certificate = {};
  std::string key = {};

  // What the server's certificate must be made out to. Empty: the address's
  // host.
  std::string server_name = {};
};

}  // namespace gemmd
