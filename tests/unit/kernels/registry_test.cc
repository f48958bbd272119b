#include "kernels/registry.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(KernelRegistryTest, ListsTheWholeLadderInOrder) {
  const KernelRegistry registry = KernelRegistry::Create();
  std::vector<std::string> names;
  for (const KernelEntry& entry : registry.entries()) {
    names.push_back(entry.info.name);
  }
  const std::vector<std::string> ladder = {
      "reference",     "openblas",        "naive", "block_tiled",
      "conflict_free", "double_buffered", "cublas"};
  names.resize(std::min(names.size(), ladder.size()));
  EXPECT_EQ(names, ladder);
}

TEST(KernelRegistryTest, NamesAreUniqueAndSnakeCase) {
  const KernelRegistry registry = KernelRegistry::Create();
  std::set<std::string> names;
  for (const KernelEntry& entry : registry.entries()) {
    EXPECT_TRUE(names.insert(entry.info.name).second) << entry.info.name;
    EXPECT_THAT(entry.info.name, MatchesRegex("[a-z][a-z0-9_]*"));
    EXPECT_NE(entry.info.name, "auto");
    EXPECT_FALSE(entry.info.description.empty());
  }
}

TEST(KernelRegistryTest, OnlyBatchInvariantKernelsAreFused) {
  const KernelRegistry registry = KernelRegistry::Create();
  for (const KernelEntry& entry : registry.entries()) {
    if (entry.info.fused) {
      EXPECT_TRUE(entry.info.batch_invariant) << entry.info.name;
      EXPECT_EQ(entry.info.space, MemorySpace::kDevice) << entry.info.name;
    }
  }
}

TEST(KernelRegistryTest, AnEntryHasAKernelOrAReason) {
  const KernelRegistry registry = KernelRegistry::Create();
  for (const KernelEntry& entry : registry.entries()) {
    EXPECT_NE(entry.kernel == nullptr, entry.unavailable_reason.empty())
        << entry.info.name;
    if (entry.kernel == nullptr) continue;
    EXPECT_EQ(entry.kernel->info().name, entry.info.name);
  }
}

TEST(KernelRegistryTest, HostKernelsAlwaysRun) {
  const KernelRegistry registry = KernelRegistry::Create();
  for (const std::string name : {"reference", "openblas"}) {
    const auto kernel = registry.Find(name);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ((*kernel)->info().space, MemorySpace::kHost);
  }
}

TEST(KernelRegistryTest, AnUnknownNameListsThoseThereAre) {
  const auto kernel = KernelRegistry::Create().Find("cublass");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(kernel.status().message()),
              HasSubstr("no kernel 'cublass'; there are reference, openblas, "
                        "naive, "));
}

TEST(KernelRegistryTest, AKernelThatCannotRunHereSaysWhy) {
  std::vector<KernelEntry> entries;
  entries.emplace_back();
  entries.back().info.name = "warp";
  entries.back().unavailable_reason = "no GPU";
  const auto kernel = KernelRegistry(std::move(entries)).Find("warp");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(kernel.status().message(),
            "the kernel warp cannot run here: no GPU");
}

}  // namespace
}  // namespace gemmd
