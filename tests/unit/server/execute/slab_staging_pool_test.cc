#include "server/execute/slab_staging_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "proto/error_details.h"

namespace gemmd {
namespace {

constexpr size_t kKiB = 1024;

// Heap slabs, with a count of those that live and a way to refuse.
class SlabSource {
 public:
  SlabStagingPool::AllocateSlab For() {
    return [this](size_t bytes) -> absl::StatusOr<SlabMemory> {
      if (refuse) return absl::ResourceExhaustedError("no memory");
      if (on_allocate) on_allocate();
      allocated_on = std::this_thread::get_id();
      ++live;
      return SlabMemory(static_cast<std::byte*>(std::aligned_alloc(256, bytes)),
                        [this](std::byte* data) {
                          --live;
                          std::free(data);
                        });
    };
  }
  std::function<void()> on_allocate;  // not to be set while others allocate
  std::atomic<int> live{0};
  std::atomic<bool> refuse{false};
  std::atomic<std::thread::id> allocated_on{};
};

std::unique_ptr<SlabStagingPool> MakePool(SlabSource& source, size_t capacity,
                                          size_t slab_bytes) {
  absl::StatusOr<std::unique_ptr<SlabStagingPool>> pool =
      SlabStagingPool::Create({capacity, slab_bytes}, source.For());
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

// As a client does that obeys RetryInfo.
StagingBuffer AllocateWithRetries(SlabStagingPool& pool, size_t bytes) {
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < give_up) {
    absl::StatusOr<StagingBuffer> buffer = pool.Allocate(bytes);
    if (buffer.ok()) return *std::move(buffer);
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(RetryDelay(buffer.status()).has_value());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ADD_FAILURE() << "no room for " << bytes << " bytes in 20 s";
  return StagingBuffer();
}

// I3: while requests find room, no slab is asked for.
TEST(SlabStagingPoolTest, AsksForNoMemoryWhileHalfIsFree) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  EXPECT_EQ(pool->slab_allocations(), 1);
  for (int i = 0; i < 1000; ++i) {
    absl::StatusOr<StagingBuffer> a = pool->Allocate(4 * kKiB);
    absl::StatusOr<StagingBuffer> b = pool->Allocate(4 * kKiB);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % 256, 0u);
  }
  EXPECT_EQ(pool->slab_allocations(), 1);
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(SlabStagingPoolTest, GrowsOnAThreadOfItsOwnBeforeItIsFull) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  absl::StatusOr<StagingBuffer> more_than_half = pool->Allocate(9 * kKiB);
  ASSERT_TRUE(more_than_half.ok());
  // Nobody has been refused, and yet there is a second slab soon.
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (source.live < 2 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(source.live, 2);
  EXPECT_NE(source.allocated_on.load(), std::this_thread::get_id());
}

TEST(SlabStagingPoolTest, ABufferLargerThanASlabGetsItsOwn) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  EXPECT_EQ(pool->Allocate(40 * kKiB).status().code(),
            absl::StatusCode::kResourceExhausted);
  StagingBuffer large = AllocateWithRetries(*pool, 40 * kKiB);
  std::memset(large.data(), 1, large.size());
  EXPECT_EQ(large.size(), 40 * kKiB);
}

TEST(SlabStagingPoolTest, ALargerWishDuringGrowthIsNotForgotten) {
  SlabSource source;
  std::latch first_growth(1);
  std::latch wish(1);
  std::atomic<int> calls{0};
  source.on_allocate = [&] {
    if (++calls != 2) return;  // the first slab is made by Create
    first_growth.count_down();
    wish.wait();
  };
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  const absl::StatusOr<StagingBuffer> most = pool->Allocate(9 * kKiB);
  ASSERT_TRUE(most.ok());
  first_growth.wait();
  EXPECT_FALSE(pool->Allocate(32 * kKiB).ok());  // asks, once
  wish.count_down();
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (source.live < 3 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  ASSERT_EQ(source.live, 3);  // made without a second wish
  AllocateWithRetries(*pool, 32 * kKiB);
}

TEST(SlabStagingPoolTest, StaysWithinItsCapacityAndComesBack) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  std::vector<StagingBuffer> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(AllocateWithRetries(*pool, 16 * kKiB));
  }
  EXPECT_EQ(pool->slab_bytes(), 64 * kKiB);
  const absl::Status full = pool->Allocate(1).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(source.live, 4);
  buffers.clear();
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_TRUE(pool->Allocate(16 * kKiB).ok());
  EXPECT_EQ(pool->Allocate(64 * kKiB + 1).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(SlabStagingPoolTest, EmptySlabsMakeWayForALargeOneAtTheLimit) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  std::vector<StagingBuffer> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(AllocateWithRetries(*pool, 16 * kKiB));
  }
  buffers.resize(2);
  // 16 KiB in use twice: 48 KiB in one piece cannot be had, and the attempt
  // costs nothing.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pool->Allocate(48 * kKiB).status().code(),
              absl::StatusCode::kResourceExhausted);
    std::this_thread::yield();
  }
  EXPECT_EQ(pool->slab_bytes(), 64 * kKiB);
  EXPECT_TRUE(pool->Allocate(16 * kKiB).ok());
  buffers.resize(1);
  const StagingBuffer large = AllocateWithRetries(*pool, 48 * kKiB);
  EXPECT_EQ(pool->slab_bytes(), 64 * kKiB);
  EXPECT_EQ(source.live, 2);
}

TEST(SlabStagingPoolTest, KeepsWhatItHasWhenNoMemoryIsToBeHad) {
  SlabSource source;
  const auto pool = MakePool(source, 64 * kKiB, 16 * kKiB);
  source.refuse = true;
  absl::StatusOr<StagingBuffer> all = pool->Allocate(16 * kKiB);
  ASSERT_TRUE(all.ok());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pool->Allocate(kKiB).status().code(),
              absl::StatusCode::kResourceExhausted);
    std::this_thread::yield();
  }
  // Not the least of the budget went with the slabs that were not to be had.
  source.refuse = false;
  AllocateWithRetries(*pool, 48 * kKiB);
  AllocateWithRetries(*pool, kKiB);
}

TEST(SlabStagingPoolTest, SaysWhyItCannotBegin) {
  SlabSource source;
  source.refuse = true;
  EXPECT_EQ(SlabStagingPool::Create({64 * kKiB, 16 * kKiB}, source.For())
                .status()
                .message(),
            "no memory");
}

TEST(SlabStagingPoolTest, ManyThreadsNeverShareABufferWhileItGrows) {
  SlabSource source;
  const auto pool = MakePool(source, 256 * kKiB, 16 * kKiB);
  std::vector<std::thread> threads;
  std::atomic<bool> shared{false};
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 2000; ++round) {
        absl::StatusOr<StagingBuffer> buffer =
            pool->Allocate(1 + (round * 37 + t * 11) % (20 * kKiB));
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
