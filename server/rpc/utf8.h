// UTF-8 as proto3 strings need it: no overlong form, no surrogate, nothing
// above U+10FFFF.

#pragma once

#include <cstdint>
#include <span>

namespace gemmd {

// Checks text that comes in pieces.
class Utf8Checker {
 public:
  // False once the text so far is the start of no valid text.
  bool Feed(std::span<const uint8_t> bytes);

  // The text does not end within a character.
  bool complete() const { return missing_ == 0; }

 private:
  bool Lead(uint8_t byte);

  int missing_ = 0;     // continuation bytes of the present character
  uint8_t low_ = 0x80;  // bounds of the next one
  uint8_t high_ = 0xBF;
};

}  // namespace gemmd
