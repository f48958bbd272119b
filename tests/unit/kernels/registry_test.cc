#include "kernels/registry.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_kernels.h"

namespace gemmd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(KernelRegistryTest, ListsTheWholeLadderInOrder) {
  const KernelRegistry registry = KernelRegistry::Create();
  std::vector<std::string> names;
  for (const KernelEntry& entry : registry.entries()) {
    names.push_back(entry.info.name);
  }
  const std::vector<std::string> ladder = {
      "reference",   "openblas",      "naive",
      "block_tiled", "conflict_free", "double_buffered",
      "small_tiles", "skinny",        "cublas"};
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
    if (entry.info.fusion != Fusion::kNone) {
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

TEST(KernelRegistryTest, ClientsAreToldNoPathsAndFunctions) {
  const KernelInfo info{.name = "blas"};
  const KernelEntry library =
      UnavailableEntry(info, absl::NotFoundError("tried /opt/libblas.so"));
  EXPECT_EQ(library.kernel, nullptr);
  EXPECT_THAT(library.unavailable_reason, HasSubstr("library"));
  EXPECT_THAT(library.unavailable_reason, Not(HasSubstr("/opt")));
  EXPECT_EQ(library.unavailable_detail, "tried /opt/libblas.so");
  const KernelEntry broken =
      UnavailableEntry(info, absl::InternalError("cudaThing: 700"));
  EXPECT_THAT(broken.unavailable_reason, Not(HasSubstr("cudaThing")));
  EXPECT_EQ(UnavailableEntry(info, absl::FailedPreconditionError("no device"))
                .unavailable_reason,
            "no device");
}

TEST(KernelRegistryTest, HostKernelsAlwaysRun) {
  const KernelRegistry registry = KernelRegistry::Create();
  for (const std::string name : {"reference", "openblas"}) {
    const auto kernel = registry.Find(name);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ((*kernel)->info().space, MemorySpace::kHost);
  }
}

TEST(KernelRegistryTest, AnUnknownNameListsThoseThatRun) {
  std::vector<KernelEntry> entries;
  entries.push_back(
      UnavailableEntry({.name = "warp"}, absl::FailedPreconditionError("x")));
  KernelEntry& reference = entries.emplace_back();
  reference.kernel = MakeReferenceSgemm();
  reference.info = reference.kernel->info();
  const auto kernel = KernelRegistry(std::move(entries)).Find("cublass");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(kernel.status().message(),
            "there is no kernel 'cublass'; those that can run here are "
            "reference");
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
