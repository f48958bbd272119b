#include "server/execute/cpu/heap_staging_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "proto/error_details.h"

namespace gemmd {
namespace {

std::unique_ptr<HeapStagingPool> MakePool(size_t capacity) {
  absl::StatusOr<std::unique_ptr<HeapStagingPool>> pool =
      HeapStagingPool::Create(capacity);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(HeapStagingPoolTest, BuffersAreExactAlignedAndGivenBack) {
  const std::unique_ptr<HeapStagingPool> pool = MakePool(1 << 20);
  {
    absl::StatusOr<StagingBuffer> a = pool->Allocate(1000);
    absl::StatusOr<StagingBuffer> b = pool->Allocate(1);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->size(), 1000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % 256, 0u);
    std::memset(a->data(), 1, a->size());
    StagingBuffer moved = *std::move(a);
    EXPECT_EQ(moved.size(), 1000u);
    EXPECT_EQ(pool->used_bytes(), 1024u + 256u);
    moved = *std::move(b);
    EXPECT_EQ(pool->used_bytes(), 256u);
  }
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(HeapStagingPoolTest, ZeroBytesIsAnEmptyBuffer) {
  const std::unique_ptr<HeapStagingPool> pool = MakePool(1 << 20);
  absl::StatusOr<StagingBuffer> empty = pool->Allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(HeapStagingPoolTest, FullNowMayBeRetriedAndTooLargeMayNot) {
  const std::unique_ptr<HeapStagingPool> pool = MakePool(4096);
  absl::StatusOr<StagingBuffer> all = pool->Allocate(4096);
  ASSERT_TRUE(all.ok());
  const absl::Status full = pool->Allocate(1).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(full).has_value());
  const absl::Status large = pool->Allocate(4097).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(RetryDelay(large).has_value());
  EXPECT_THAT(std::string(large.message()),
              ::testing::HasSubstr("--pinned-pool-bytes"));
  EXPECT_EQ(pool->Allocate(SIZE_MAX).status().code(),
            absl::StatusCode::kOutOfRange);
  all->Reset();
  EXPECT_TRUE(pool->Allocate(4096).ok());
}

TEST(HeapStagingPoolTest, ManyThreadsNeverShareABuffer) {
  const std::unique_ptr<HeapStagingPool> pool = MakePool(64 << 10);
  std::vector<std::thread> threads;
  std::atomic<bool> shared{false};
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 3000; ++round) {
        absl::StatusOr<StagingBuffer> buffer =
            pool->Allocate(1 + (round * 37 + t * 11) % 9000);
        if (!buffer.ok()) continue;
        std::memset(buffer->data(), t, buffer->size());
        for (size_t i = 0; i < buffer->size(); ++i) {
          if (buffer->data()[i] != std::byte(t)) shared = true;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
  EXPECT_EQ(pool->used_bytes(), 0u);
}

}  // namespace
}  // namespace gemmd
