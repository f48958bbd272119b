// Uploads: one stream or many, whole or broken off.

#include <numeric>

#include "proto/error_details.h"
#include "tests/unit/server/store/store_fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class UploadTest : public StoreFixture {};

TEST_F(UploadTest, WhatWasUploadedIsFoundAndReadBack) {
  const std::string bytes = RandomBytes(37 * 11 * 4);
  const auto result = Upload(Spec("a", 37, 11), bytes, /*chunk=*/100);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->id, "a");
  EXPECT_TRUE(result->complete);
  EXPECT_FALSE(result->already_held);
  const auto matrix = store_->Find("alice", "a");
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ((*matrix)->rows(), 37);
  EXPECT_EQ((*matrix)->cols(), 11);
  EXPECT_EQ(ReadBack(*matrix), bytes);
  EXPECT_EQ(store_->used_bytes(), bytes.size());
}

TEST_F(UploadTest, MintsAnIdWhereThereIsNone) {
  const auto first = Upload("", 2, 2);
  const auto second = Upload("", 2, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->id, second->id);
  EXPECT_EQ(FindCode(first->id), absl::StatusCode::kOk);
  EXPECT_LE(first->id.size(), 128u);
}

TEST_F(UploadTest, APartOfAMatrixNeedsAnId) {
  EXPECT_EQ(store_->BeginUpload(Rows(Spec("", 4, 4), 0, 2)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(UploadTest, EmptyMatricesAreMatrices) {
  for (const auto& [rows, cols] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
    UploadSpec spec = Spec("e", rows, cols);
    spec.digest = DigestOf("");
    const auto result = Upload(spec, "");
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->complete);
    ASSERT_TRUE(store_->Find("alice", "e").ok());
    ASSERT_TRUE(store_->Delete("alice", "e").ok());
  }
}

TEST_F(UploadTest, FinishAnswersWhenTheLastCopyIsDone) {
  backend_->device().Hold();
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  int copied = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*upload)
                    ->Append(Chunk("12345678"),
                             [&](const absl::Status& status) {
                               EXPECT_TRUE(status.ok());
                               ++copied;
                             })
                    .ok());
  }
  int answers = 0;
  (*upload)->Finish([&](absl::StatusOr<Result> result) {
    EXPECT_EQ(copied, 2);
    EXPECT_TRUE(result.ok() && result->complete);
    ++answers;
  });
  upload->reset();  // it may go now
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kFailedPrecondition);
  backend_->device().RunCopies();
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kOk);
}

// Random cuts into streams, random order of their chunks, with a digest: the
// matrix is complete exactly when the last stream has ended.
TEST_F(UploadTest, ManyStreamsMakeOneMatrix) {
  for (int round = 0; round < 8; ++round) {
    Make({}, {size_t{32} << 20});
    const int64_t rows = 1 + static_cast<int64_t>(random_() % 40);
    const int64_t cols = 1 + static_cast<int64_t>(random_() % (1 << 17));
    const std::string bytes = RandomBytes(rows * cols * 4);
    UploadSpec spec = Spec("m", rows, cols);
    spec.digest = DigestOf(bytes);
    struct Stream {
      std::unique_ptr<MatrixUpload> upload;
      absl::string_view rest;
    };
    std::vector<Stream> streams;
    for (int64_t first = 0; first < rows;) {
      const int64_t count = std::min<int64_t>(rows - first, 1 + random_() % 15);
      auto upload = store_->BeginUpload(Rows(spec, first, count));
      ASSERT_TRUE(upload.ok()) << upload.status();
      streams.push_back(
          {*std::move(upload), absl::string_view(bytes).substr(
                                   first * cols * 4, count * cols * 4)});
      first += count;
    }
    while (!streams.empty()) {
      const size_t i = random_() % streams.size();
      Stream& stream = streams[i];
      const size_t size =
          std::min<size_t>(stream.rest.size(), 4 * (random_() % (1 << 18)));
      ASSERT_TRUE(Append(*stream.upload, stream.rest.substr(0, size)).ok());
      stream.rest.remove_prefix(size);
      if (!stream.rest.empty()) continue;
      EXPECT_EQ(FindCode("m"), absl::StatusCode::kFailedPrecondition);
      const auto result = Finish(*stream.upload);
      ASSERT_TRUE(result.ok()) << result.status();
      streams.erase(streams.begin() + static_cast<ptrdiff_t>(i));
      EXPECT_EQ(result->complete, streams.empty());
    }
    const auto matrix = store_->Find("alice", "m");
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(ReadBack(*matrix), bytes);
  }
}

TEST_F(UploadTest, AWrongDigestDropsTheMatrix) {
  Make({}, {size_t{32} << 20});
  const std::string bytes = RandomBytes(3 * 100'000 * 4);
  for (const size_t wrong : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    UploadSpec spec = Spec("a", 3, 100'000);
    spec.digest = DigestOf(bytes);
    std::string sent = bytes;
    sent[wrong] = static_cast<char>(sent[wrong] + 1);
    const auto result = Upload(spec, sent);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("digest"));
    EXPECT_EQ(FindCode("a"), absl::StatusCode::kNotFound);
    EXPECT_EQ(store_->used_bytes(), 0u);
  }
}

// A client that did not hear of a stream's end sends it again.
TEST_F(UploadTest, AStreamWhoseRowsAreThereIsNotWantedAgain) {
  const std::string bytes = RandomBytes(10 * 4 * 4);
  for (const bool digest : {true, false}) {
    UploadSpec spec = Spec(digest ? "told" : "untold", 10, 4);
    if (digest) spec.digest = DigestOf(bytes);
    const auto carry = [&](int64_t first, int64_t count) {
      return Upload(Rows(spec, first, count),
                    absl::string_view(bytes).substr(first * 16, count * 16));
    };
    ASSERT_TRUE(carry(0, 6).ok());
    const auto again = carry(0, 6);
    EXPECT_EQ(again.ok(), digest) << again.status();
    if (digest) {
      EXPECT_FALSE(again->complete);
      EXPECT_FALSE(again->already_held);
    }
    EXPECT_FALSE(carry(0, 5).ok()) << "other rows";
    const auto last = carry(6, 4);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_TRUE(last->complete);
    EXPECT_EQ(ReadBack(*store_->Find("alice", spec.id)), bytes);
  }
}

TEST_F(UploadTest, StreamsThatDisagreeAreRefused) {
  const UploadSpec spec = Spec("a", 10, 4);
  auto first = store_->BeginUpload(Rows(spec, 3, 4));
  ASSERT_TRUE(first.ok());
  const auto refused = [&](const UploadSpec& other) {
    return store_->BeginUpload(other).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(Rows(Spec("a", 11, 4), 0, 2))) << "other rows";
  EXPECT_TRUE(refused(Rows(Spec("a", 10, 5), 0, 2))) << "other cols";
  UploadSpec digest = Rows(spec, 0, 2);
  digest.digest = std::string(32, 'x');
  EXPECT_TRUE(refused(digest));
  // Every range against [3, 7), both while it comes and when it is there.
  for (const bool arrived : {false, true}) {
    if (arrived) {
      ASSERT_TRUE(Append(**first, std::string(4 * 4 * 4, 'x')).ok());
      ASSERT_TRUE(Finish(**first).ok());
    }
    for (int64_t begin = 0; begin < 10; ++begin) {
      for (int64_t end = begin + 1; end <= 10; ++end) {
        const bool overlaps = begin < 7 && end > 3;
        EXPECT_EQ(refused(Rows(spec, begin, end - begin)), overlaps)
            << begin << " to " << end;
      }
    }
  }
}

TEST_F(UploadTest, MissingAndSurplusBytesAreRefused) {
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  EXPECT_EQ((*upload)->missing_bytes(), 16u);
  ASSERT_TRUE(Append(**upload, "12345678").ok());
  EXPECT_EQ((*upload)->missing_bytes(), 8u);
  EXPECT_EQ(Append(**upload, "123456789").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*upload)->missing_bytes(), 8u) << "what is refused counts nothing";
  EXPECT_EQ(Finish(**upload).status().code(),
            absl::StatusCode::kInvalidArgument);
  // The rows are wanted again.
  auto again = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(Append(**again, "1234567812345678").ok());
  EXPECT_TRUE(Finish(**again).ok());
}

TEST_F(UploadTest, AnAbandonedStreamsRowsAreWantedAgain) {
  const std::string bytes = RandomBytes(4 * 300'000 * 4);
  Make({}, {size_t{32} << 20});
  UploadSpec spec = Spec("a", 4, 300'000);
  spec.digest = DigestOf(bytes);
  const size_t half = bytes.size() / 2;
  auto first = store_->BeginUpload(Rows(spec, 0, 2));
  auto second = store_->BeginUpload(Rows(spec, 2, 2));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(Append(**first, bytes.substr(0, half)).ok());
  ASSERT_TRUE(Finish(**first).ok());
  ASSERT_TRUE(Append(**second, std::string(half, 'x')).ok());
  second->reset();
  auto third = store_->BeginUpload(Rows(spec, 2, 2));
  ASSERT_TRUE(third.ok()) << third.status();
  ASSERT_TRUE(Append(**third, bytes.substr(half)).ok());
  const auto result = Finish(**third);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->complete);
  EXPECT_EQ(ReadBack(*store_->Find("alice", "a")), bytes);
}

TEST_F(UploadTest, AnAbandonedUploadIsGivenUpAfterAWhile) {
  Make({.abandon_after = absl::Minutes(1)}, {1 << 20});
  auto live = store_->BeginUpload(Rows(Spec("live", 4, 4), 0, 2));
  auto gone = store_->BeginUpload(Rows(Spec("gone", 4, 4), 0, 2));
  ASSERT_TRUE(live.ok() && gone.ok());
  gone->reset();
  const MonotonicTime now = MonotonicClock::now();
  store_->RemoveExpired(now + std::chrono::seconds(50));
  EXPECT_EQ(FindCode("gone"), absl::StatusCode::kFailedPrecondition);
  store_->RemoveExpired(now + std::chrono::seconds(70));
  EXPECT_EQ(FindCode("gone"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("live"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(observer_.count(Removal::kAbandoned), 1);
  EXPECT_EQ(store_->used_bytes(), 64u);
}

TEST_F(UploadTest, WhatAFailedStreamLeavesIsGivenUpWithoutBeingAskedFor) {
  Make({.abandon_after = absl::Milliseconds(20)}, {1 << 20});
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE(Append(**upload, "12345678").ok());
  EXPECT_FALSE(Finish(**upload).ok()) << "half of it is missing";
  upload->reset();
  for (int i = 0; i < 10'000 && store_->used_bytes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(store_->used_bytes(), 0u);
}

TEST_F(UploadTest, ADeviceThatEndsNoCopyIsStuckUntilItDoes) {
  Make({.device_timeout = absl::Minutes(1)}, {1 << 20, 1 << 20});
  backend_->device().Hold();
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  store_->RemoveExpired(MonotonicClock::now() + std::chrono::seconds(70));
  EXPECT_FALSE(store_->stuck()) << "it has nothing to do";
  ASSERT_TRUE(Append(**upload, "12345678").ok());
  const MonotonicTime now = MonotonicClock::now();
  store_->RemoveExpired(now + std::chrono::seconds(50));
  EXPECT_FALSE(store_->stuck());
  for (const int seconds : {70, 80}) {
    store_->RemoveExpired(now + std::chrono::seconds(seconds));
    EXPECT_TRUE(store_->stuck());
    EXPECT_EQ(observer_.faults, 1);
  }
  backend_->device().RunCopies();
  EXPECT_FALSE(store_->stuck());
}

TEST_F(UploadTest, AnAbandonedStreamsCopiesDoNotHarmWhatComesAfter) {
  backend_->device().Hold();
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE(Append(**upload, "xxxxxxxxxxxxxxxx").ok());
  upload->reset();
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(store_->used_bytes(), 16u) << "a copy is still under way";
  backend_->device().RunCopies();
  EXPECT_EQ(store_->used_bytes(), 0u);
}

TEST_F(UploadTest, DeletingAnUploadStopsItsStreams) {
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(Append(**upload, "12345678").code(), absl::StatusCode::kNotFound);
  // One that had nothing to send any more learns it from Finish.
  auto full = store_->BeginUpload(Spec("b", 2, 2));
  ASSERT_TRUE(Append(**full, "1234567812345678").ok());
  ASSERT_TRUE(store_->Delete("alice", "b").ok());
  EXPECT_EQ(Finish(**full).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("b"), absl::StatusCode::kNotFound);
}

TEST_F(UploadTest, ADeviceFaultEndsTheUploadAndIsTold) {
  backend_->device().Hold();
  auto upload = store_->BeginUpload(Spec("a", 2, 2));
  ASSERT_TRUE(upload.ok());
  absl::Status copied;
  ASSERT_TRUE((*upload)
                  ->Append(Chunk("1234567812345678"),
                           [&](absl::Status status) { copied = status; })
                  .ok());
  absl::StatusOr<Result> result = absl::UnknownError("not yet");
  (*upload)->Finish([&](absl::StatusOr<Result> r) { result = std::move(r); });
  backend_->device().RunCopies(absl::InternalError("cudaSecret"));
  EXPECT_EQ(copied.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::Not(HasSubstr("cudaSecret")));
  EXPECT_EQ(observer_.faults, 1);
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kNotFound);
}

TEST_F(UploadTest, ATtlOfNothingOrACenturyIsRefused) {
  const auto code = [&](absl::Duration ttl) {
    UploadSpec spec = Spec("a", 2, 2);
    spec.ttl = ttl;
    return store_->BeginUpload(spec).status().code();
  };
  EXPECT_EQ(code(absl::ZeroDuration()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(-absl::Seconds(1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(absl::Hours(24 * 36'525)), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(absl::InfiniteDuration()), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(absl::Hours(24)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace gemmd
