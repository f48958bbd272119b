#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

// Multiplies, but for one element.
absl::Status Lie(grpc::ServerContext&, const v1::SgemmRequest& request,
                 v1::SgemmResponse* response) {
  Multiply(request, response);
  std::string& c = *response->mutable_c();
  reinterpret_cast<float*>(c.data())[c.size() / 8] += 1;
  return absl::OkStatus();
}

TEST(VerifyTest, AWrongProductIsReportedAndNotReturned) {
  FakeServer server(Lie);
  const auto client =
      NewClient({.address = server.address(), .verify_fraction = 1});
  const Matrix a = RandomMatrix(30, 40);
  const Matrix b = RandomMatrix(40, 50);
  const auto answer = client->Sgemm({.a = a.view(), .b = b.view()});
  EXPECT_TRUE(absl::IsDataLoss(answer.status())) << answer.status();
  EXPECT_EQ(server.calls(), 1);  // not tried again

  absl::Notification done;
  client->SgemmAsync({.a = a.view(), .b = b.view()},
                     [&](absl::StatusOr<SgemmAnswer> result) {
                       EXPECT_TRUE(absl::IsDataLoss(result.status()));
                       done.Notify();
                     });
  done.WaitForNotification();
}

TEST(VerifyTest, ARightProductIsReturnedAndSaysThatItWasVerified) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .verify_fraction = 1});
  const Matrix a = RandomMatrix(30, 40);
  const Matrix b = RandomMatrix(40, 50);
  Matrix c = RandomMatrix(30, 50);
  const auto answer = client->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->verified);
  // The product comes to lie where C was.
  const auto in_place = client->Sgemm({.a = a.view(),
                                       .b = b.view(),
                                       .c = c.view(),
                                       .alpha = -2,
                                       .beta = 3,
                                       .output = c.mutable_view()});
  ASSERT_TRUE(in_place.ok()) << in_place.status();
  EXPECT_TRUE(in_place->verified);
}

TEST(VerifyTest, AResidentOperandCountsIfItsSourceLives) {
  FakeServer server(Lie);
  const auto client =
      NewClient({.address = server.address(), .verify_fraction = 1});
  const Matrix a = RandomMatrix(30, 40);
  const Matrix b = RandomMatrix(40, 50);
  const auto known = client->Upload(b.view(), {.source_lives = true});
  const auto unknown = client->Upload(b.view());
  EXPECT_TRUE(
      absl::IsDataLoss(client->Sgemm({.a = a.view(), .b = *known}).status()));
  const auto unchecked = client->Sgemm({.a = a.view(), .b = *unknown});
  ASSERT_TRUE(unchecked.ok()) << unchecked.status();
  EXPECT_FALSE(unchecked->verified);
}

TEST(VerifyTest, ALargeProductIsVerifiedWhenItHasComeBack) {
  FakeServer server(Lie);
  server.info.mutable_limits()->set_max_inline_bytes(10'000);
  server.info.mutable_limits()->set_matrix_store_bytes(1 << 30);
  const auto client =
      NewClient({.address = server.address(), .verify_fraction = 1});
  const Matrix a = RandomMatrix(600, 20);
  const Matrix b = RandomMatrix(20, 600);
  EXPECT_TRUE(
      absl::IsDataLoss(client->Sgemm({.a = a.view(), .b = b.view()}).status()));
}

TEST(VerifyTest, TheFractionIsKept) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .verify_fraction = 0.25});
  const Matrix a = RandomMatrix(2, 2);
  int verified = 0;
  for (int i = 0; i < 400; ++i) {
    verified += client->Sgemm({.a = a.view(), .b = a.view()})->verified;
  }
  EXPECT_NEAR(verified, 100, 6 * std::sqrt(75));
}

}  // namespace
}  // namespace gemmd
