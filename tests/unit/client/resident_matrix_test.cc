#include "gemmd/resident_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class ResidentMatrixTest : public ::testing::Test {
 protected:
  ResidentMatrix Upload(const Matrix& x, const UploadOptions& options = {}) {
    absl::StatusOr<ResidentMatrix> matrix = client_->Upload(x.view(), options);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *std::move(matrix);
  }
  // A x B, whatever they are made of.
  Matrix Product(const Operand& a, const Operand& b) {
    absl::StatusOr<SgemmAnswer> answer = client_->Sgemm({.a = a, .b = b});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::move(answer->c) : Matrix();
  }

  FakeServer server_{Answer};
  std::unique_ptr<Client> client_ =
      NewClient({.address = server_.address(), .retry = QuickRetries()});
  const Matrix a_ = RandomMatrix(6, 40);
  const Matrix b_ = RandomMatrix(40, 50);
};

TEST_F(ResidentMatrixTest, IsAnOperandThatIsNotSentAgain) {
  const ResidentMatrix b = Upload(b_);
  EXPECT_EQ(b.rows(), 40);
  EXPECT_EQ(b.cols(), 50);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(Product(a_.view(), b), Expected(a_, b_)));
  }
  EXPECT_EQ(server_.seen().uploads, 1);
  EXPECT_LT(server_.seen().largest_request, 6 * 40 * 4 + 200u);
}

TEST_F(ResidentMatrixTest, ComesBackAsItWent) {
  const ResidentMatrix b = Upload(b_);
  const absl::StatusOr<Matrix> whole = client_->Download(b);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(SameBits(*whole, b_));

  // Rows into the middle of a wider matrix.
  std::vector<float> wide(5 * 60, -7.0f);
  const absl::Status status =
      client_->Download(b, 11, {wide.data(), 5, 50, 60});
  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 60; ++j) {
      EXPECT_EQ(wide[i * 60 + j], j < 50 ? b_(11 + i, j) : -7.0f);
    }
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      client_->Download(b, 36, {wide.data(), 5, 50, 60})));
}

TEST_F(ResidentMatrixTest, AHandleOfNothingIsSaidNotFollowed) {
  const ResidentMatrix none;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Download(none).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      client_->Sgemm({.a = none, .b = b_.view()}).status()));
}

TEST_F(ResidentMatrixTest, APaddedSourceIsUploadedWithoutItsPadding) {
  const MatrixView part = {b_.data() + 3, 40, 33, 50};
  absl::StatusOr<ResidentMatrix> matrix = client_->Upload(part);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const absl::StatusOr<Matrix> back = client_->Download(*matrix);
  ASSERT_TRUE(back.ok()) << back.status();
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 33; ++j) EXPECT_EQ((*back)(i, j), b_(i, j + 3));
  }
}

TEST_F(ResidentMatrixTest, AMatrixOfNothingIsAMatrix) {
  const Matrix none(0, 40);
  const ResidentMatrix a = Upload(none);
  EXPECT_EQ(Product(a, b_.view()).rows(), 0);
  const absl::StatusOr<Matrix> back = client_->Download(a);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->cols(), 40);
}

TEST_F(ResidentMatrixTest, IsDroppedWhenTheHandleGoes) {
  {
    const ResidentMatrix b = Upload(b_);
    EXPECT_THAT(server_.matrices().ids(), ElementsAre(b.id()));
  }
  EXPECT_TRUE(Eventually([&] { return server_.matrices().ids().empty(); }));
}

TEST_F(ResidentMatrixTest, IsDroppedBeforeTheClientIsGone) {
  for (int i = 0; i < 20; ++i) {
    Upload(b_);
    client_.reset();
    EXPECT_THAT(server_.matrices().ids(), IsEmpty());
    client_ = NewClient({.address = server_.address()});
  }
}

TEST_F(ResidentMatrixTest, MayOutliveTheClient) {
  ResidentMatrix b = Upload(b_);
  client_.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(b.Delete()));
  EXPECT_THAT(server_.matrices().ids(), Not(IsEmpty()));  // until its ttl
}

TEST_F(ResidentMatrixTest, StaysWhenReleasedAndIsFoundByItsId) {
  const std::string id = Upload(b_, {.id = "weights.1"}).Release();
  EXPECT_EQ(id, "weights.1");
  {
    const absl::StatusOr<ResidentMatrix> found = client_->FindMatrix(id);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(SameBits(Product(a_.view(), *found), Expected(a_, b_)));
  }
  client_.reset();
  EXPECT_THAT(server_.matrices().ids(), ElementsAre(id));
  client_ = NewClient({.address = server_.address()});
  EXPECT_TRUE(absl::IsNotFound(client_->FindMatrix("other").status()));
}

TEST_F(ResidentMatrixTest, DeleteWaitsAndForgivesWhatIsGone) {
  ResidentMatrix b = Upload(b_);
  EXPECT_TRUE(b.Delete().ok());
  EXPECT_THAT(server_.matrices().ids(), IsEmpty());
  EXPECT_FALSE(b);
  EXPECT_TRUE(b.Delete().ok());
  ResidentMatrix again = Upload(b_);
  server_.matrices().Clear();
  EXPECT_TRUE(again.Delete().ok());
}

TEST_F(ResidentMatrixTest, TheCallsThatUseItKeepIt) {
  const Matrix a = RandomMatrix(300, 400);  // long enough to be under way
  const Matrix b = RandomMatrix(400, 300);
  absl::Notification done;
  {
    const ResidentMatrix resident = Upload(b);
    client_->SgemmAsync({.a = a.view(), .b = resident},
                        [&](absl::StatusOr<SgemmAnswer> answer) {
                          EXPECT_TRUE(answer.ok()) << answer.status();
                          done.Notify();
                        });
  }
  done.WaitForNotification();
  EXPECT_TRUE(Eventually([&] { return server_.matrices().ids().empty(); }));
}

TEST_F(ResidentMatrixTest, IsUploadedAgainWhenTheServerLostIt) {
  const ResidentMatrix a = Upload(a_, {.source_lives = true});
  const ResidentMatrix b = Upload(b_, {.source_lives = true});
  for (int i = 0; i < 3; ++i) {
    server_.matrices().Clear();
    EXPECT_TRUE(SameBits(Product(a, b), Expected(a_, b_)));
  }
  EXPECT_EQ(server_.seen().uploads, 8);

  server_.matrices().Clear();
  absl::Notification done;
  client_->SgemmAsync({.a = a, .b = b},
                      [&](absl::StatusOr<SgemmAnswer> answer) {
                        ASSERT_TRUE(answer.ok()) << answer.status();
                        EXPECT_TRUE(SameBits(answer->c, Expected(a_, b_)));
                        done.Notify();
                      });
  done.WaitForNotification();

  server_.matrices().Clear();
  const absl::StatusOr<Matrix> back = client_->Download(a);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(SameBits(*back, a_));
}

TEST_F(ResidentMatrixTest, IsUploadedOnceForAllThatMissIt) {
  const ResidentMatrix b = Upload(b_, {.source_lives = true});
  server_.matrices().Clear();
  std::vector<std::jthread> threads;
  threads.reserve(6);
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(SameBits(Product(a_.view(), b), Expected(a_, b_)));
    });
  }
  threads.clear();
  EXPECT_EQ(server_.seen().uploads, 2);
}

// Another thread, or another program of this client id, uploads it just now.
TEST_F(ResidentMatrixTest, ADownloadWaitsForAMatrixThatIsBeingRestored) {
  const ResidentMatrix b = Upload(b_, {.id = "b", .source_lives = true});
  server_.matrices().Clear();
  v1::UploadHeader header;
  header.set_matrix_id("b");
  header.set_rows(40);
  header.set_cols(50);
  header.set_digest(BlockDigest(
      std::string(reinterpret_cast<const char*>(b_.data()), 4 * 40 * 50)));
  ASSERT_TRUE(server_.matrices().BeginUpload(header).ok());
  const absl::StatusOr<Matrix> back = client_->Download(b);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(SameBits(*back, b_));
}

TEST_F(ResidentMatrixTest, WithoutALivingSourceTheErrorIsNotFound) {
  const ResidentMatrix b = Upload(b_);
  server_.matrices().Clear();
  const auto answer = client_->Sgemm({.a = a_.view(), .b = b});
  EXPECT_TRUE(absl::IsNotFound(answer.status())) << answer.status();
  EXPECT_TRUE(absl::IsNotFound(client_->Download(b).status()));
  EXPECT_EQ(server_.seen().uploads, 1);
}

TEST_F(ResidentMatrixTest, AnUnknownKernelIsNoReasonToUpload) {
  FakeServer picky([](grpc::ServerContext&, const v1::SgemmRequest&,
                      v1::SgemmResponse*) {
    return ResourceNotFoundError("gemmd.v1.Kernel", "nosuch", "no such kernel");
  });
  client_ = NewClient({.address = picky.address()});
  const ResidentMatrix b = Upload(b_, {.source_lives = true});
  const auto answer = client_->Sgemm({.a = a_.view(), .b = b});
  EXPECT_TRUE(absl::IsNotFound(answer.status())) << answer.status();
  EXPECT_EQ(picky.seen().uploads, 1);
  EXPECT_EQ(picky.calls(), 1);
}

TEST_F(ResidentMatrixTest, ARepeatedUploadSendsNoNumbers) {
  const Matrix large = RandomMatrix(500, 1000);
  const ResidentMatrix first = Upload(large);
  const uint64_t bytes = server_.seen().uploaded_bytes;
  EXPECT_EQ(bytes, 2'000'000u);
  const ResidentMatrix second = Upload(large);
  EXPECT_NE(first.id(), second.id());
  // A message or two may be under way before the answer is there.
  EXPECT_LE(server_.seen().uploaded_bytes, bytes + (2 << 20));
  const absl::StatusOr<Matrix> back = client_->Download(second);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(SameBits(*back, large));
}

TEST_F(ResidentMatrixTest, AnIdThatIsTakenIsSaid) {
  const ResidentMatrix first = Upload(a_, {.id = "x"});
  const absl::Status status = client_->Upload(b_.view(), {.id = "x"}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_TRUE(SameBits(*client_->Download(first), a_));  // left alone
  EXPECT_TRUE(absl::IsInvalidArgument(
      client_->Upload(b_.view(), {.id = "no spaces"}).status()));
}

TEST_F(ResidentMatrixTest, AnUploadIsTriedAgainFromTheBeginning) {
  server_.FailUploads(2, absl::UnavailableError("draining"));
  const ResidentMatrix b = Upload(b_);
  EXPECT_EQ(server_.seen().uploads, 3);
  EXPECT_TRUE(SameBits(*client_->Download(b), b_));
  server_.FailUploads(1, absl::ResourceExhaustedError("no room, for good"));
  EXPECT_TRUE(absl::IsResourceExhausted(client_->Upload(a_.view()).status()));
  EXPECT_EQ(server_.seen().uploads, 4);
}

TEST_F(ResidentMatrixTest, ChainsOfProductsStayOnTheServer) {
  const Matrix c_ = RandomMatrix(50, 7);
  const ResidentMatrix a = Upload(a_), b = Upload(b_), c = Upload(c_);
  auto ab =
      client_->Sgemm({.a = a, .b = b, .resident_output = ResidentOutput{}});
  ASSERT_TRUE(ab.ok()) << ab.status();
  EXPECT_EQ(ab->c.data(), nullptr);
  EXPECT_EQ(ab->resident.rows(), 6);
  EXPECT_EQ(ab->resident.cols(), 50);
  Matrix product(6, 50);
  const std::vector<float> expected = Expected(a_, b_);
  std::copy(expected.begin(), expected.end(), product.data());
  EXPECT_TRUE(SameBits(Product(ab->resident, c), Expected(product, c_)));
  // The answer's handle owns the new matrix.
  EXPECT_EQ(server_.matrices().ids().size(), 4u);
  ab = absl::CancelledError();
  EXPECT_TRUE(Eventually([&] { return server_.matrices().ids().size() == 3; }));
}

TEST_F(ResidentMatrixTest, AnAccumulationIsAppliedOnceThoughItsAnswerIsLost) {
  const Matrix zero = [] {
    Matrix x(6, 50);
    std::fill_n(x.data(), 300, 0.0f);
    return x;
  }();
  ResidentMatrix sum = Upload(zero, {.source_lives = true});
  const SgemmCall call = {.a = a_.view(),
                          .b = b_.view(),
                          .c = sum,
                          .beta = 1.0f,
                          .resident_output = ResidentOutput{.into = &sum}};
  server_.LoseAnswers(2);
  const auto first = client_->Sgemm(call);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->attempts, 3);
  EXPECT_TRUE(first->execution.replayed);
  EXPECT_TRUE(SameBits(*client_->Download(sum), Expected(a_, b_)));
  // One id for the tries of a call, another for the next call.
  ASSERT_TRUE(client_->Sgemm(call).ok());
  const std::vector<std::string> ids = server_.seen().request_ids;
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_THAT(ids, Each(Not(IsEmpty())));
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[1], ids[2]);
  EXPECT_NE(ids[2], ids[3]);
  const Matrix doubled = *client_->Download(sum);
  const std::vector<float> expected = Expected(a_, b_);
  for (int i = 0; i < 300; ++i) {
    EXPECT_NEAR(doubled.data()[i], 2 * expected[i], 1e-4f);
  }
}

TEST_F(ResidentMatrixTest, AProductIntoItsOwnOperandIsAppliedOnce) {
  const Matrix start = RandomMatrix(8, 8), w = RandomMatrix(8, 8);
  for (const bool by_name : {false, true}) {
    for (const bool on_the_left : {false, true}) {
      const std::string id = absl::StrCat("x", by_name, on_the_left);
      ResidentMatrix x = Upload(start, {.id = id, .source_lives = true});
      SgemmCall call = {.a = w.view(), .b = x};
      if (on_the_left) std::swap(call.a, call.b);
      call.resident_output =
          by_name ? ResidentOutput{.id = id} : ResidentOutput{.into = &x};
      server_.LoseAnswers(2);
      const auto answer = client_->Sgemm(call);
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_TRUE(answer->execution.replayed);
      EXPECT_TRUE(SameBits(*client_->Download(x), on_the_left
                                                      ? Expected(start, w)
                                                      : Expected(w, start)));
      // What was uploaded is not what it holds any more.
      server_.matrices().Clear();
      EXPECT_TRUE(absl::IsNotFound(client_->Download(x).status()));
    }
  }
}

TEST_F(ResidentMatrixTest, WhatWasAddedIsNotLostByUploadingTheSourceAgain) {
  const Matrix start = RandomMatrix(6, 50);
  ResidentMatrix sum = Upload(start, {.source_lives = true});
  const SgemmCall call = {.a = a_.view(),
                          .b = b_.view(),
                          .c = sum,
                          .beta = 1.0f,
                          .resident_output = ResidentOutput{.into = &sum}};
  ASSERT_TRUE(client_->Sgemm(call).ok());
  server_.matrices().Clear();
  EXPECT_TRUE(absl::IsNotFound(client_->Sgemm(call).status()));
  EXPECT_EQ(server_.seen().uploads, 1);
}

TEST_F(ResidentMatrixTest, AFailedProductLeavesAMatrixOfThatNameAlone) {
  const std::string id = Upload(b_, {.id = "kept"}).Release();
  FakeServer::Handler refuse = [](grpc::ServerContext&, const v1::SgemmRequest&,
                                  v1::SgemmResponse*) {
    return absl::FailedPreconditionError("another shape");
  };
  FakeServer server(refuse);
  server.matrices().Put("kept", 1, 1, std::string(4, 'x'));
  const auto client = NewClient({.address = server.address()});
  EXPECT_FALSE(client
                   ->Sgemm({.a = a_.view(),
                            .b = b_.view(),
                            .resident_output = ResidentOutput{.id = "kept"}})
                   .ok());
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_THAT(server.matrices().ids(), ElementsAre("kept"));
}

}  // namespace
}  // namespace gemmd
