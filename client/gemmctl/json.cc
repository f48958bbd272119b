#include "client/gemmctl/json.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::gemmctl {
namespace {

std::string Quote(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (byte < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", byte);
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace

JsonObject& JsonObject::AddJson(absl::string_view key,
                                absl::string_view value) {
  absl::StrAppend(&members_, members_.empty() ? "" : ", ", Quote(key), ": ",
                  value);
  return *this;
}

JsonObject& JsonObject::Add(absl::string_view key, absl::string_view value) {
  return AddJson(key, Quote(value));
}

JsonObject& JsonObject::Add(absl::string_view key, double value) {
  return AddJson(
      key, std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null");
}

JsonObject& JsonObject::Add(absl::string_view key, int64_t value) {
  return AddJson(key, absl::StrCat(value));
}

JsonObject& JsonObject::Add(absl::string_view key, uint64_t value) {
  return AddJson(key, absl::StrCat(value));
}

JsonObject& JsonObject::Add(absl::string_view key, bool value) {
  return AddJson(key, value ? "true" : "false");
}

JsonArray& JsonArray::Add(const JsonObject& object) {
  absl::StrAppend(&elements_, elements_.empty() ? "" : ", ", object.str());
  return *this;
}

}  // namespace gemmd::gemmctl
