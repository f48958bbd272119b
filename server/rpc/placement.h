// On which device a product runs.

#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "server/store/resident_matrix.h"

namespace gemmd {

// Of the devices that hold most of the matrices' bytes, so that least is
// copied, the one with the least `outstanding` to do (one number a device); of
// several, the first from device `turn` on. With no matrix, all devices hold as
// much.
//
// Needs: at least one device; every matrix is on one of them.
int ChooseDevice(std::span<const std::shared_ptr<ResidentMatrix>> matrices,
                 std::span<const double> outstanding, uint64_t turn);

}  // namespace gemmd
