// Many threads do everything at once, on a store that is too small for them.
// Run under ThreadSanitizer.

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/store/store_fixture.h"

namespace gemmd {
namespace {

class StoreStressTest : public StoreFixture {
 protected:
  static constexpr int kThreads = 6;
  static constexpr int kSteps = 400;
  static constexpr int64_t kRows = 8;
  static constexpr int64_t kCols = 16;

  // A matrix holds one value.
  static std::string Fill(uint8_t value) {
    return std::string(kRows * kCols * 4, static_cast<char>(value));
  }
  static void ExpectWhole(absl::string_view bytes) {
    for (const char byte : bytes) ASSERT_EQ(byte, bytes[0]) << "torn";
  }

  // Ours may be evicted, deleted or replaced by others at any moment: then an
  // honest error, and never anything else.
  void UploadInParts(const std::string& client, const std::string& id,
                     std::mt19937& random) {
    UploadSpec spec = Spec(id, kRows, kCols);
    spec.client = client;
    const std::string bytes = Fill(static_cast<uint8_t>(random() % 8));
    // Without a digest, streams of two uploads of one id would make one matrix.
    const bool in_parts = random() % 2;
    if (in_parts) spec.digest = DigestOf(bytes);
    const int64_t rows = in_parts ? kRows / 2 : kRows;
    for (int64_t first = 0; first < kRows; first += rows) {
      auto upload = store_->BeginUpload(Rows(spec, first, rows));
      if (!upload.ok()) {
        ++refused_;
        return;
      }
      if ((*upload)->missing_bytes() > 0 &&
          !Append(**upload, absl::string_view(bytes).substr(first * kCols * 4,
                                                            rows * kCols * 4))
               .ok()) {
        return;
      }
      if (random() % 10 == 0) return;  // abandoned
      (*upload)->Finish([](const absl::StatusOr<Result>&) {});
    }
  }

  void Step(std::mt19937& random) {
    const std::string client = absl::StrCat("client", random() % 3);
    const std::string id = absl::StrCat("id", random() % 4);
    switch (random() % 7) {
      case 0:
      case 1:
        UploadInParts(client, id, random);
        break;
      case 2: {
        auto output = store_->BeginOutput(client, id, kRows, kCols, {},
                                          static_cast<int>(random() % 2));
        if (!output.ok()) break;
        // As a product writes it.
        const auto& matrix = (*output)->matrix();
        std::memset(matrix->data(matrix->home()),
                    static_cast<int>(random() % 8), matrix->bytes());
        if (random() % 4 != 0) (*output)->Commit();
        break;
      }
      case 3: {
        const auto matrix = store_->Find(client, id);
        if (!matrix.ok()) break;
        ++found_;
        ExpectWhole(ReadBack(*matrix));
        break;
      }
      case 4: {
        const auto matrix = store_->Find(client, id);
        if (!matrix.ok()) break;
        const int to = 1 - (*matrix)->home();
        store_->CopyTo(*matrix, to, [to, matrix](const absl::Status& status) {
          if (!status.ok()) return;
          ExpectWhole({reinterpret_cast<char*>((*matrix)->data(to)),
                       (*matrix)->bytes()});
        });
        break;
      }
      case 5:
        store_->Delete(client, id).IgnoreError();
        break;
      default:
        store_->List(client);
        store_->RemoveExpired(MonotonicClock::now());
    }
  }

  std::atomic<int> found_{0};
  std::atomic<int> refused_{0};
};

TEST_F(StoreStressTest, NobodySeesATornMatrixAndAllIsGivenBack) {
  Make({.ttl = absl::Milliseconds(20),
        .abandon_after = absl::Milliseconds(5),
        .client_bytes = 4 * 512},
       {6 * 512, 6 * 512});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, seed = seed_ + t] {
      std::mt19937 random(seed);
      for (int step = 0; step < kSteps; ++step) Step(random);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found_, 0);
  store_->RemoveExpired(MonotonicClock::now() + std::chrono::hours(100));
  EXPECT_EQ(store_->matrices(), 0);
  EXPECT_EQ(store_->used_bytes(), 0u);
}

}  // namespace
}  // namespace gemmd
