#include "server/store/shared_regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/server/store/fake_backend.h"

namespace gemmd {
namespace {

constexpr size_t kBytes = 1 << 16;

// Registers nothing, and knows who asked it to let go.
class PinningBackend : public FakeStoreBackend {
 public:
  PinningBackend() : FakeStoreBackend({0}) {}

  absl::Status Pin(std::byte*, size_t) override { return absl::OkStatus(); }
  void Unpin(std::byte*) override {
    unpinned_on_ = std::this_thread::get_id();
    ++unpinned_;
  }

  int unpinned() const { return unpinned_; }
  // Once it has happened, and whoever did it has been joined.
  std::thread::id unpinned_on() const { return unpinned_on_; }

 private:
  std::atomic<int> unpinned_ = 0;
  std::thread::id unpinned_on_;
};

std::string Add(SharedRegions& regions) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, kBytes), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const absl::StatusOr<std::string> id = regions.Add(fd, kBytes);
  EXPECT_TRUE(id.ok()) << id.status();
  close(fd);
  return *id;
}

TEST(SharedRegionsTest, WhoHeldARegionLastDoesNotUnmapIt) {
  PinningBackend backend;
  {
    SharedRegions regions({}, &backend);
    const std::string id = Add(regions);
    std::shared_ptr<SharedRegion> held = regions.Find(id);
    regions.Remove(id);
    EXPECT_EQ(regions.Find(id), nullptr);
    EXPECT_EQ(regions.regions(), 1) << "a product holds it";
    held.reset();
  }
  EXPECT_EQ(backend.unpinned(), 1);
  EXPECT_NE(backend.unpinned_on(), std::this_thread::get_id());
}

TEST(SharedRegionsTest, AllAreUnmappedWhenItEnds) {
  PinningBackend backend;
  {
    SharedRegions regions({}, &backend);
    for (int i = 0; i < 10; ++i) Add(regions);
    EXPECT_EQ(regions.bytes(), 10 * kBytes);
  }
  EXPECT_EQ(backend.unpinned(), 10);
}

TEST(SharedRegionsTest, ARegionMayOutliveIt) {
  PinningBackend backend;
  auto regions =
      std::make_unique<SharedRegions>(SharedRegionsOptions{}, &backend);
  std::shared_ptr<SharedRegion> held = regions->Find(Add(*regions));
  regions.reset();
  EXPECT_EQ(backend.unpinned(), 0);
  held->data()[kBytes - 1] = std::byte{1};
  held.reset();
  EXPECT_EQ(backend.unpinned(), 1);
}

}  // namespace
}  // namespace gemmd
