// JSON for programs that read gemmctl.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace gemmd::gemmctl {

// Builds one object, its members in the order they are added.
class JsonObject {
 public:
  JsonObject& Add(absl::string_view key, absl::string_view value);
  JsonObject& Add(absl::string_view key, const char* value) {
    return Add(key, absl::string_view(value));
  }
  JsonObject& Add(absl::string_view key, double value);  // null if not finite
  JsonObject& Add(absl::string_view key, int64_t value);
  JsonObject& Add(absl::string_view key, uint64_t value);
  JsonObject& Add(absl::string_view key, int value) {
    return Add(key, int64_t{value});
  }
  JsonObject& Add(absl::string_view key, uint32_t value) {
    return Add(key, uint64_t{value});
  }
  JsonObject& Add(absl::string_view key, bool value);

  // `value` is JSON already.
  JsonObject& AddJson(absl::string_view key, absl::string_view value);

  std::string str() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// Builds one array.
class JsonArray {
 public:
  JsonArray& Add(const JsonObject& object);
  std::string str() const { return "[" + elements_ + "]"; }

 private:
  std::string elements_;
};

}  // namespace gemmd::gemmctl
