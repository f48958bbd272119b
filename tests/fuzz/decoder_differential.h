// Holds the server's hand-written decoders to protobuf's generated parser.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gemmd {

// `message` in pieces of sizes drawn from `seed`, 0 among them.
std::vector<std::span<const uint8_t>> CutIntoSlices(
    std::span<const uint8_t> message, uint64_t seed);

// Decodes the bytes as a gemmd.v1.SgemmRequest in both ways. Returns "" where
// they agree on whether it is one and on every field, else what differs.
std::string CompareWithGeneratedParser(std::span<const uint8_t> message);

// The same for a gemmd.v1.SgemmStreamRequest and a
// gemmd.v1.UploadMatrixRequest.
std::string CompareStreamItem(std::span<const uint8_t> message);
std::string CompareUpload(std::span<const uint8_t> message);

}  // namespace gemmd
