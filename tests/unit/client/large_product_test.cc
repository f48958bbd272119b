#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLimit = 2 << 20;

// Products that are too large for one message, the server's limit being 2 MiB.
class LargeProductTest : public ::testing::Test {
 protected:
  LargeProductTest() {
    server_.info.mutable_limits()->set_max_inline_bytes(kLimit);
    server_.info.mutable_limits()->set_matrix_store_bytes(uint64_t{1} << 40);
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(Eventually([&] { return server_.matrices().ids().empty(); }));
    EXPECT_LE(server_.seen().largest_request, kLimit);
    EXPECT_LE(server_.seen().largest_chunk, 1u << 20);
  }

  FakeServer server_{Answer};
  std::unique_ptr<Client> client_ =
      NewClient({.address = server_.address(), .retry = QuickRetries()});
};

TEST_F(LargeProductTest, OperandsAreUploadedLargestFirst) {
  const Matrix a = RandomMatrix(2, 200'000);  // 1.5 MiB
  const Matrix b = RandomMatrix(200'000, 3);  // 2.3 MiB
  const auto answer = client_->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(SameBits(answer->c, Expected(a, b)));
  EXPECT_EQ(server_.seen().uploads, 1);
  EXPECT_EQ(server_.seen().uploaded_bytes, 4u * 200'000 * 3);
  EXPECT_EQ(server_.seen().info_calls, 1);
  ExpectNothingLeft();
}

TEST_F(LargeProductTest, TheAnswerIsFetchedInChunks) {
  const Matrix a = RandomMatrix(800, 2);
  const Matrix b = RandomMatrix(2, 900);  // 2.7 MiB of product
  const auto answer = client_->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(SameBits(answer->c, Expected(a, b)));
  EXPECT_FALSE(answer->resident);
  EXPECT_EQ(server_.seen().uploads, 0);
  ExpectNothingLeft();

  // And into the caller's padded rows, in place of C.
  Matrix wide(800, 1000);
  std::fill_n(wide.data(), 800'000, 3.0f);
  const MutableMatrixView c = {wide.data(), 800, 900, 1000};
  const auto added =
      client_->Sgemm({.a = a.view(),
                      .b = b.view(),
                      .c = MatrixView{c.data, c.rows, c.cols, 1000},
                      .beta = 2.0f,
                      .output = c});
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->c.data(), nullptr);
  const std::vector<float> expected = Expected(a, b);
  for (int i = 0; i < 800; ++i) {
    for (int j = 0; j < 1000; ++j) {
      ASSERT_NEAR(wide(i, j), j < 900 ? expected[i * 900 + j] + 6 : 3, 1e-5);
    }
  }
  ExpectNothingLeft();
}

TEST_F(LargeProductTest, AMatrixTimesItselfIsUploadedOnce) {
  const Matrix x = RandomMatrix(3, 200'000);
  const auto answer =
      client_->Sgemm({.a = x.view(), .b = x.view(), .transpose_b = true});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(server_.seen().uploads, 1);
  ExpectNothingLeft();
}

TEST_F(LargeProductTest, SmallProductsAskForNoLimits) {
  const Matrix a = RandomMatrix(10, 10);
  ASSERT_TRUE(client_->Sgemm({.a = a.view(), .b = a.view()}).ok());
  EXPECT_EQ(server_.seen().info_calls, 0);
}

TEST_F(LargeProductTest, AsynchronousOnesGoTheSameWay) {
  const Matrix a = RandomMatrix(2, 300'000);
  const Matrix b = RandomMatrix(300'000, 3);
  std::atomic<int> right = 0;
  for (int i = 0; i < 5; ++i) {
    client_->SgemmAsync({.a = a.view(), .b = b.view()},
                        [&](absl::StatusOr<SgemmAnswer> answer) {
                          right += answer.ok() &&
                                   SameBits(answer->c, Expected(a, b));
                        });
  }
  EXPECT_TRUE(Eventually([&] { return right == 5; }));
  EXPECT_LE(server_.seen().info_calls, 2);  // two may begin at once
  ExpectNothingLeft();
}

TEST_F(LargeProductTest, CancelEndsOneInItsUpload) {
  const Matrix a = RandomMatrix(2, 300'000);
  const Matrix b = RandomMatrix(300'000, 3);
  server_.FailUploads(1000, absl::UnavailableError("draining"));
  client_ = NewClient(
      {.address = server_.address(), .retry = {.max_attempts = 1000}});
  absl::Notification done;
  SgemmHandle handle = client_->SgemmAsync(
      {.a = a.view(), .b = b.view()}, [&](absl::StatusOr<SgemmAnswer> answer) {
        EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
        done.Notify();
      });
  EXPECT_TRUE(Eventually([&] { return server_.seen().uploads > 0; }));
  handle.Cancel();
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

TEST_F(LargeProductTest, TheClientsEndCancelsOneInItsUpload) {
  const Matrix a = RandomMatrix(2, 300'000);
  const Matrix b = RandomMatrix(300'000, 3);
  server_.FailUploads(1000, absl::UnavailableError("draining"));
  client_ = NewClient(
      {.address = server_.address(), .retry = {.max_attempts = 1000}});
  bool cancelled = false;
  client_->SgemmAsync({.a = a.view(), .b = b.view()},
                      [&](absl::StatusOr<SgemmAnswer> answer) {
                        cancelled = absl::IsCancelled(answer.status());
                      });
  EXPECT_TRUE(Eventually([&] { return server_.seen().uploads > 0; }));
  client_.reset();
  EXPECT_TRUE(cancelled);
}

TEST_F(LargeProductTest, WhatTheServerLosesMeanwhileIsSentAgain) {
  const Matrix a = RandomMatrix(200, 3'000);
  const Matrix b = RandomMatrix(3'000, 2);
  server_.info.mutable_limits()->set_max_inline_bytes(10'000);
  // All is lost once after the uploads, and once before the download.
  server_.LoseMatricesAt({1, 3});
  const auto answer = client_->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(SameBits(answer->c, Expected(a, b)));
  ExpectNothingLeft();
}

TEST_F(LargeProductTest, AServerThatKeepsNoMatricesIsSaid) {
  server_.info.mutable_limits()->set_matrix_store_bytes(0);
  const Matrix a = RandomMatrix(800, 2);
  const Matrix b = RandomMatrix(2, 900);
  const absl::Status status =
      client_->Sgemm({.a = a.view(), .b = b.view()}).status();
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-inline-bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--matrix-store-bytes"));
}

}  // namespace
}  // namespace gemmd
