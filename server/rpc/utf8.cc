#include "server/rpc/utf8.h"

namespace gemmd {

bool Utf8Checker::Feed(std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) {
    if (missing_ == 0) {
      if (!Lead(byte)) return false;
      continue;
    }
    if (byte < low_ || byte > high_) return false;
    low_ = 0x80;
    high_ = 0xBF;
    --missing_;
  }
  return true;
}

bool Utf8Checker::Lead(uint8_t byte) {
  if (byte < 0x80) return true;
  if (byte < 0xC2 || byte > 0xF4) return false;
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  if (byte == 0xE0) low_ = 0xA0;  // shorter forms exist below
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xED) high_ = 0x9F;  // surrogates above
  if (byte == 0xF4) high_ = 0x8F;  // U+10FFFF is the last
  return true;
}

}  // namespace gemmd
