// A CPU backend of its own for each test, and random numbers from a seed that a
// failure tells.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>

#include "server/execute/cpu/cpu_backend.h"
#include "tests/unit/server/execute/backend_problem.h"

namespace gemmd {

class CpuFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCpuBackend(
        {.staging_bytes = 64 << 20, .resident_bytes = 1 << 20}, registry_);
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  Device& device() { return *backend_->devices()[0]; }

  BatchReport Run(Batch batch) { return RunToEnd(device(), std::move(batch)); }

  const unsigned seed_ = std::random_device{}();
  const testing::ScopedTrace trace_{__FILE__, __LINE__,
                                    testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  const KernelRegistry registry_ = KernelRegistry::Create();
  std::unique_ptr<Backend> backend_;
};

}  // namespace gemmd
