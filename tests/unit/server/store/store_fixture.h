// A store on fake devices, and a client's side of it.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/store/matrix_store.h"
#include "tests/unit/server/store/fake_backend.h"

namespace gemmd {

// The digest as the contract has it, written once more, plainly.
inline std::string DigestOf(absl::string_view bytes) {
  std::string hashes;
  const auto hash = [](absl::string_view x) {
    std::string result(32, '\0');
    SHA256(reinterpret_cast<const unsigned char*>(x.data()), x.size(),
           reinterpret_cast<unsigned char*>(result.data()));
    return result;
  };
  for (size_t i = 0; i < bytes.size(); i += 1 << 20) {
    hashes += hash(bytes.substr(i, 1 << 20));
  }
  return hash(hashes);
}

class CountingObserver : public MatrixStoreObserver {
 public:
  void OnRemoved(Removal why) override { ++removed[static_cast<int>(why)]; }
  void OnDeviceFault(int, const absl::Status&) override { ++faults; }
  int count(Removal why) const { return removed[static_cast<int>(why)]; }

  std::array<std::atomic<int>, 5> removed{};
  std::atomic<int> faults{0};
};

class StoreFixture : public ::testing::Test {
 protected:
  using Removal = MatrixStoreObserver::Removal;
  using Result = MatrixUpload::Result;

  void SetUp() override { Make({}, {1 << 20}); }

  // Everything given back is what every test ends with.
  void TearDown() override {
    store_.reset();
    for (size_t i = 0; i < backend_->devices().size(); ++i) {
      EXPECT_EQ(backend_->device(static_cast<int>(i)).used(), 0u);
    }
    EXPECT_EQ(backend_->staging().used_bytes(), 0u);
  }

  void Make(MatrixStoreOptions options, const std::vector<size_t>& devices) {
    if (options.client_bytes == 0) options.client_bytes = size_t{1} << 40;
    store_.reset();
    backend_ = std::make_unique<FakeStoreBackend>(devices);
    store_ = MatrixStore::Create(options, *backend_, &observer_);
  }

  std::string RandomBytes(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  static UploadSpec Spec(std::string id, int64_t rows, int64_t cols) {
    UploadSpec spec;
    spec.client = "alice";
    spec.id = std::move(id);
    spec.rows = rows;
    spec.cols = cols;
    spec.row_count = rows;
    return spec;
  }
  static UploadSpec Rows(UploadSpec spec, int64_t first, int64_t count) {
    spec.first_row = first;
    spec.row_count = count;
    return spec;
  }

  StagingBuffer Chunk(absl::string_view bytes) {
    StagingBuffer chunk = *backend_->staging().Allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(),
              reinterpret_cast<char*>(chunk.data()));
    return chunk;
  }

  absl::Status Append(MatrixUpload& upload, absl::string_view bytes) {
    return upload.Append(Chunk(bytes), [](const absl::Status&) {});
  }

  // What Finish answers; fails the test where it does not answer yet.
  static absl::StatusOr<Result> Finish(MatrixUpload& upload) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<Result>>>();
    upload.Finish([answer](absl::StatusOr<Result> result) {
      *answer = std::move(result);
    });
    EXPECT_TRUE(answer->has_value()) << "Finish has not answered";
    return answer->value_or(absl::UnknownError("no answer"));
  }

  // The whole of it as one stream.
  absl::StatusOr<Result> Upload(const UploadSpec& spec, absl::string_view bytes,
                                size_t chunk = size_t{1} << 20) {
    auto upload = store_->BeginUpload(spec);
    if (!upload.ok()) return upload.status();
    while ((*upload)->missing_bytes() > 0) {
      absl::Status status = Append(**upload, bytes.substr(0, chunk));
      if (!status.ok()) return status;
      bytes.remove_prefix(std::min(chunk, bytes.size()));
    }
    return Finish(**upload);
  }
  absl::StatusOr<Result> Upload(const std::string& id, int64_t rows,
                                int64_t cols) {
    return Upload(Spec(id, rows, cols), RandomBytes(rows * cols * 4));
  }

  std::string ReadBack(const std::shared_ptr<StoredMatrix>& matrix) {
    std::string bytes;
    StagingBuffer to = *backend_->staging().Allocate(matrix->bytes());
    store_->Read(matrix, 0, std::move(to),
                 [&](const absl::Status& status, StagingBuffer buffer) {
                   ASSERT_TRUE(status.ok()) << status;
                   bytes.assign(reinterpret_cast<char*>(buffer.data()),
                                buffer.size());
                 });
    return bytes;
  }

  absl::StatusCode FindCode(absl::string_view id,
                            absl::string_view client = "alice") {
    return store_->Find(client, id).status().code();
  }

  const unsigned seed_ = std::random_device{}();
  const testing::ScopedTrace trace_{__FILE__, __LINE__,
                                    testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  CountingObserver observer_;
  std::unique_ptr<FakeStoreBackend> backend_;
  std::unique_ptr<MatrixStore> store_;
};

}  // namespace gemmd
