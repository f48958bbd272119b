// A device for tests of tuning.

#pragma once

#include <functional>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "kernels/tuning.h"
#include "kernels/tuning_device.h"

namespace gemmd {

// Answers from a function instead of measuring.
class FakeTuningDevice : public TuningDevice {
 public:
  absl::StatusOr<double> Microseconds(const SgemmKernel& kernel,
                                      const SgemmArgs& like,
                                      int products) override {
    EXPECT_EQ(products, ProductsOf(like));
    const std::string& name = kernel.info().name;
    ++measured[name];
    absl::Status supported = kernel.Supports(like);
    if (!supported.ok()) return supported;
    return answer(name, like);
  }

  std::function<absl::StatusOr<double>(const std::string&, const SgemmArgs&)>
      answer = [](const std::string&, const SgemmArgs& like) {
        return like.shape.flops();
      };
  std::map<std::string, int> measured;
};

}  // namespace gemmd
