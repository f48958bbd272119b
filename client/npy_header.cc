#include "client/npy_header.h"

#include <charconv>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxQuotedBytes = 60;

// Reads the part of Python's literals that NumPy writes.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Dictionary();

 private:
  absl::Status Error(absl::string_view wanted) const {
    absl::string_view rest = text_.substr(at_, 20);
    return absl::InvalidArgumentError(absl::StrCat(
        "the .npy header is damaged at byte ", at_, ": wanted ", wanted,
        ", got ", rest.empty() ? "its end" : Quoted(rest)));
  }

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  // Takes `token` where it comes next.
  bool Take(absl::string_view token) {
    SkipSpace();
    if (!absl::StartsWith(text_.substr(at_), token)) return false;
    at_ += token.size();
    return true;
  }

  absl::StatusOr<std::string> String();
  absl::StatusOr<std::string> Bracketed();
  absl::StatusOr<std::vector<uint64_t>> Tuple();
  absl::Status Entry(const std::string& key, NpyHeader* header);

  absl::string_view text_;
  size_t at_ = 0;
};

absl::StatusOr<std::string> Parser::String() {
  SkipSpace();
  if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
    return Error("a quoted string");
  }
  const char quote = text_[at_];
  const size_t end = text_.find(quote, at_ + 1);
  if (end == absl::string_view::npos) return Error("a closed string");
  std::string value(text_.substr(at_ + 1, end - at_ - 1));
  at_ = end + 1;
  return value;
}

// The text of a [...] that describes a record; its inside is not looked at.
absl::StatusOr<std::string> Parser::Bracketed() {
  SkipSpace();
  int depth = 0;
  for (size_t i = at_; i < text_.size(); ++i) {
    if (text_[i] == '[') ++depth;
    if (text_[i] == ']' && --depth == 0) {
      std::string value(text_.substr(at_, i + 1 - at_));
      at_ = i + 1;
      return value;
    }
  }
  return Error("a closed list");
}

absl::StatusOr<std::vector<uint64_t>> Parser::Tuple() {
  if (!Take("(")) return Error("a shape like (3, 4)");
  std::vector<uint64_t> values;
  while (!Take(")")) {
    if (!values.empty()) {
      if (!Take(",")) return Error("\",\" or \")\"");
      if (Take(")")) break;
    }
    SkipSpace();
    uint64_t value = 0;
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    const auto [end, error] = std::from_chars(first, last, value);
    if (error != std::errc()) return Error("a size below 2^64");
    at_ += end - first;
    Take("L");  // Python 2 wrote long numbers so
    values.push_back(value);
  }
  return values;
}

absl::Status Parser::Entry(const std::string& key, NpyHeader* header) {
  if (key == "descr") {
    SkipSpace();
    const bool record = at_ < text_.size() && text_[at_] == '[';
    absl::StatusOr<std::string> descr = record ? Bracketed() : String();
    if (!descr.ok()) return descr.status();
    header->descr = *std::move(descr);
    return absl::OkStatus();
  }
  if (key == "fortran_order") {
    header->fortran_order = Take("True");
    if (header->fortran_order || Take("False")) return absl::OkStatus();
    return Error("True or False");
  }
  if (key == "shape") {
    absl::StatusOr<std::vector<uint64_t>> shape = Tuple();
    if (!shape.ok()) return shape.status();
    header->shape = *std::move(shape);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the .npy header has the key ", Quoted(key),
                   "; wanted are descr, fortran_order and shape"));
}

absl::StatusOr<NpyHeader> Parser::Dictionary() {
  NpyHeader header;
  std::set<std::string> seen;
  if (!Take("{")) return Error("\"{\"");
  while (!Take("}")) {
    absl::StatusOr<std::string> key = String();
    if (!key.ok()) return key.status();
    if (!Take(":")) return Error("\":\"");
    if (absl::Status status = Entry(*key, &header); !status.ok()) return status;
    if (!seen.insert(*std::move(key)).second) return Error("each key once");
    if (!Take(",")) {
      if (Take("}")) break;
      return Error("\",\" or \"}\"");
    }
  }
  SkipSpace();
  if (at_ != text_.size()) return Error("nothing after the dictionary");
  if (seen.size() != 3) {
    return absl::InvalidArgumentError(
        "the .npy header lacks one of descr, fortran_order and shape");
  }
  return header;
}

}  // namespace

absl::StatusOr<size_t> NpyPreambleBytes(absl::string_view first_bytes) {
  if (!absl::StartsWith(first_bytes, kMagic)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a .npy file: it begins with ",
        Quoted(first_bytes.substr(0, kMagic.size())),
        ", wanted is \"\\x93NUMPY\" (numpy.save writes such files)"));
  }
  const int major = static_cast<unsigned char>(first_bytes[6]);
  if (major < 1 || major > 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        ".npy format version ", major, "; versions 1, 2 and 3 are known"));
  }
  return major == 1 ? 10 : 12;
}

uint32_t NpyDictionaryBytes(absl::string_view preamble) {
  uint32_t length = 0;
  for (size_t i = kNpyMagicBytes; i < preamble.size(); ++i) {
    length |= uint32_t{static_cast<unsigned char>(preamble[i])}
              << (8 * (i - kNpyMagicBytes));
  }
  return length;
}

absl::StatusOr<NpyHeader> ParseNpyDictionary(absl::string_view dictionary) {
  return Parser(dictionary).Dictionary();
}

std::string NpyHeaderBytes(int64_t rows, int64_t cols) {
  std::string dictionary =
      absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows,
                   ", ", cols, "), }");
  const size_t unpadded = 10 + dictionary.size() + 1;  // with the final newline
  dictionary.append((64 - unpadded % 64) % 64, ' ');
  dictionary.push_back('\n');
  const size_t length = dictionary.size();
  std::string header(kMagic);
  header.append({'\x01', '\x00', static_cast<char>(length & 0xff),
                 static_cast<char>(length >> 8)});
  return header + dictionary;
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxQuotedBytes)) {
    if (absl::ascii_isprint(c)) {
      quoted.push_back(c);
    } else {
      absl::StrAppend(
          &quoted, "\\x",
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  absl::StrAppend(&quoted, text.size() > kMaxQuotedBytes ? "...\"" : "\"");
  return quoted;
}

std::string NpyTypeName(absl::string_view descr) {
  if (absl::StartsWith(descr, "[")) return "a record";
  absl::string_view type = descr;
  if (!type.empty() && absl::StrContains("<>|=", type[0])) {
    type.remove_prefix(1);
  }
  static constexpr struct {
    absl::string_view code;
    absl::string_view name;
  } kNames[] = {
      {"f2", "float16"},   {"f4", "float32"},   {"f8", "float64"},
      {"f16", "float128"}, {"i1", "int8"},      {"i2", "int16"},
      {"i4", "int32"},     {"i8", "int64"},     {"u1", "uint8"},
      {"u2", "uint16"},    {"u4", "uint32"},    {"u8", "uint64"},
      {"b1", "bool"},      {"c8", "complex64"}, {"c16", "complex128"},
      {"O", "object"},
  };
  for (const auto& [code, name] : kNames) {
    if (type == code) return std::string(name);
  }
  return std::string(descr);
}

}  // namespace gemmd::client
