// What a caller may be allowed to do.

#pragma once

#include <cstdint>

namespace gemmd {

// A set of roles is a sum of these.
enum class Role : uint8_t {
  kInfo = 1,     // GetServerInfo
  kCompute = 2,  // products, and the matrices they use
};

class Roles {
 public:
  constexpr Roles() = default;
  static constexpr Roles All() {
    Roles all;
    all.Add(Role::kInfo);
    all.Add(Role::kCompute);
    return all;
  }

  constexpr void Add(Role role) { bits_ |= static_cast<uint8_t>(role); }
  constexpr bool Has(Role role) const {
    return (bits_ & static_cast<uint8_t>(role)) != 0;
  }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  uint8_t bits_ = 0;
};

// "info", "compute".
const char* RoleName(Role role);

}  // namespace gemmd
