// What the device can do at most, measured: the figures others are shares of.

#pragma once

namespace gemmd {

// FP32 FMA alone, no memory: operations a second of every multiprocessor busy
// with independent fused multiply-adds.
double MeasureFfmaFlops();

// Bytes a second of a device-to-device copy, those read and those written.
double MeasureCopyBytesPerSecond();

}  // namespace gemmd
