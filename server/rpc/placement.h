// On which device a product runs.

#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "server/store/stored_matrix.h"

namespace gemmd {

// The device with the least to do before it could begin: what is `outstanding`
// (by CostOf, one number a device) and the bytes of the matrices that it does
// not hold yet; of several, the first from device `turn` on. So a matrix is
// used where it is until its device is the bottleneck, and is then copied to
// another. With `copies` false, of those that hold most of the bytes.
//
// Needs: at least one device; every matrix is on one of them.
int ChooseDevice(std::span<const std::shared_ptr<StoredMatrix>> matrices,
                 std::span<const double> outstanding, uint64_t turn,
                 bool copies = true);

}  // namespace gemmd
