// Sgemm with operands and outputs that stay on the device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/rpc/matrix_fixture.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

class SgemmResidentTest : public MatrixFixture {
 protected:
  SgemmResidentTest() { StartServer(); }

  // X += I * I, in place: adds 1 to the diagonal of a 2 x 2 matrix.
  static v1::SgemmRequest AddOnes(const std::string& id,
                                  const std::string& request_id = "") {
    v1::SgemmRequest request;
    for (v1::Operand* x : {request.mutable_a(), request.mutable_b()}) {
      x->set_rows(2);
      x->set_cols(2);
      const float identity[] = {1, 0, 0, 1};
      x->set_data(identity, sizeof(identity));
    }
    request.set_beta(1.0f);
    request.mutable_c()->set_rows(2);
    request.mutable_c()->set_cols(2);
    request.mutable_c()->set_matrix_id(id);
    request.mutable_output()->mutable_resident()->set_matrix_id(id);
    request.set_request_id(request_id);
    return request;
  }

  float FirstElement(const std::string& id) {
    const auto matrix = Fetch(id);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    float value = NAN;
    if (matrix.ok()) std::memcpy(&value, matrix->packed.data(), sizeof(value));
    return value;
  }

  void KeepZeros(const std::string& id) {
    ASSERT_TRUE(Upload(Header(id, 2, 2), std::string(16, '\0')).ok());
  }

  // An addition that the device has begun; it ends when the gate lets it.
  std::future<absl::StatusOr<v1::SgemmResponse>> AddUntilTheGateOpens(
      const std::string& id, const std::string& request_id) {
    backend_->gate().Close();
    auto answer = std::async(std::launch::async, [=, this] {
      return Multiply(AddOnes(id, request_id));
    });
    WaitFor([&] { return backend_->gate().waiting() == 1; });
    return answer;
  }
};

TEST_F(SgemmResidentTest, AnyOperandMayBeResidentAndTheBitsAreTheSame) {
  v1::SgemmRequest product = Product(17, 33, 65);
  product.set_beta(0.5f);
  *product.mutable_c() = Product(17, 1, 33).a();
  const auto inlined = Multiply(product);
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  for (int which = 1; which < 8; ++which) {
    v1::SgemmRequest request = product;
    if (which & 1) Keep(*request.mutable_a(), absl::StrCat("a", which));
    if (which & 2) Keep(*request.mutable_b(), absl::StrCat("b", which));
    if (which & 4) Keep(*request.mutable_c(), absl::StrCat("c", which));
    const auto response = Multiply(request);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(response->c() == inlined->c()) << which;
    EXPECT_EQ(response->matrix_id(), "");
  }
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, TheProductStaysAndNothingOfItIsSent) {
  v1::SgemmRequest request = Product(17, 33, 65);
  const auto inlined = Multiply(request);
  request.mutable_output()->mutable_resident()->set_matrix_id("p");
  request.mutable_output()->mutable_resident()->mutable_ttl()->set_seconds(99);
  const auto response = Multiply(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->matrix_id(), "p");
  EXPECT_EQ(response->rows(), 17);
  EXPECT_EQ(response->cols(), 33);
  EXPECT_EQ(response->c(), "");
  EXPECT_TRUE(Fetch("p")->packed == inlined->c());
  EXPECT_LE(List().at("p").expires_in().seconds(), 99);
  request.mutable_output()->mutable_resident()->clear_matrix_id();
  const auto minted = Multiply(request);
  ASSERT_TRUE(minted.ok());
  EXPECT_TRUE(Fetch(minted->matrix_id())->packed == inlined->c());
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, AChainNeverLeavesTheDevice) {
  v1::SgemmRequest first = Product(20, 30, 40, 1);
  v1::SgemmRequest second = Product(20, 10, 30, 2);
  const auto ab = Multiply(first);
  second.mutable_a()->set_data(ab->c());
  const auto wanted = Multiply(second);
  first.mutable_output()->mutable_resident()->set_matrix_id("ab");
  ASSERT_TRUE(Multiply(first).ok());
  second.mutable_a()->set_matrix_id("ab");
  const auto response = Multiply(second);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->c() == wanted->c());
}

TEST_F(SgemmResidentTest, AnInlineCMayGoIntoAResidentProduct) {
  v1::SgemmRequest request = Product(5, 6, 7);
  request.set_beta(2.0f);
  *request.mutable_c() = Product(5, 1, 6, 9).a();
  const auto inlined = Multiply(request);
  request.mutable_output()->mutable_resident()->set_matrix_id("p");
  ASSERT_TRUE(Multiply(request).ok());
  EXPECT_TRUE(Fetch("p")->packed == inlined->c());
}

TEST_F(SgemmResidentTest, AProductMayReplaceWhatItIsMadeFrom) {
  v1::SgemmRequest request = Product(6, 6, 6);
  const auto inlined = Multiply(request);
  Keep(*request.mutable_a(), "x");
  request.mutable_output()->mutable_resident()->set_matrix_id("x");
  const auto response = Multiply(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(Fetch("x")->packed == inlined->c());
}

TEST_F(SgemmResidentTest, ARepeatedRequestIsAnsweredAndNotAppliedAgain) {
  KeepZeros("x");
  for (int i = 0; i < 3; ++i) {
    const auto response = Multiply(AddOnes("x", "once"));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->execution().replayed(), i > 0);
    EXPECT_EQ(response->matrix_id(), "x");
    EXPECT_EQ(response->rows(), 2);
    EXPECT_EQ(FirstElement("x"), 1.0f);
  }
  EXPECT_FALSE(Multiply(AddOnes("x", "twice"))->execution().replayed());
  EXPECT_FALSE(Multiply(AddOnes("x"))->execution().replayed());
  EXPECT_FALSE(Multiply(AddOnes("x"))->execution().replayed());
  EXPECT_EQ(FirstElement("x"), 4.0f);
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, AccumulationsIntoOneMatrixTakeTurns) {
  KeepZeros("x");
  constexpr int kClients = 4, kEach = 25;
  std::vector<std::thread> clients;
  for (int t = 0; t < kClients; ++t) {
    clients.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const auto response = Multiply(AddOnes("x"));
        ASSERT_TRUE(response.ok()) << response.status();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(FirstElement("x"), 1.0f * kClients * kEach);
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, OneThatWaitsForItsTurnCanBeCancelled) {
  KeepZeros("x");
  auto first = AddUntilTheGateOpens("x", "one");
  grpc::ClientContext context;
  auto second = std::async(std::launch::async, [&] {
    v1::SgemmResponse response;
    return stub_->Sgemm(&context, AddOnes("x", "two"), &response);
  });
  WaitFor([&] { return admission_->requests() == 2; });
  context.TryCancel();
  EXPECT_EQ(second.get().error_code(), grpc::StatusCode::CANCELLED);
  // What it held is free although its turn has not come.
  WaitFor([&] { return admission_->requests() == 1; });
  // It was cancelled, so that its id is not known as done.
  auto third = std::async(std::launch::async,
                          [&] { return Multiply(AddOnes("x", "two")); });
  backend_->gate().Open();
  EXPECT_TRUE(first.get().ok());
  const auto again = third.get();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->execution().replayed());
  EXPECT_EQ(FirstElement("x"), 2.0f);
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, OneThatWaitsForItsTurnEndsAtItsDeadline) {
  KeepZeros("x");
  auto first = AddUntilTheGateOpens("x", "one");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(100));
  v1::SgemmResponse response;
  EXPECT_EQ(stub_->Sgemm(&context, AddOnes("x", "two"), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitFor([&] { return admission_->requests() == 1; });
  backend_->gate().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(FirstElement("x"), 1.0f);
}

TEST_F(SgemmResidentTest, ADrainLetsThoseThatWaitForTheirTurnHaveIt) {
  KeepZeros("x");
  backend_->gate().Close();
  constexpr int kClients = 4;
  std::vector<std::future<absl::StatusOr<v1::SgemmResponse>>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(
        std::async(std::launch::async, [&] { return Multiply(AddOnes("x")); }));
  }
  WaitFor([&] { return admission_->requests() == kClients; });
  const MonotonicTime deadline =
      MonotonicClock::now() + std::chrono::seconds(60);
  auto refused =
      std::async(std::launch::async, [&] { server_->RefuseNew(deadline); });
  EXPECT_EQ(refused.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout)
      << "three have not reached the queue";
  backend_->gate().Open();
  refused.get();
  EXPECT_TRUE(scheduler_->Drain(deadline));
  for (auto& client : clients) {
    const auto response = client.get();
    EXPECT_TRUE(response.ok()) << response.status();
  }
}

TEST_F(SgemmResidentTest, AProductThatFailsLeavesItsOutputAsItWas) {
  KeepZeros("x");
  auto lost = AddUntilTheGateOpens("x", "one");
  backend_->gate().Drop();
  EXPECT_EQ(lost.get().status().code(), absl::StatusCode::kInternal);
  backend_->gate().Open();
  EXPECT_EQ(FirstElement("x"), 0.0f);
  EXPECT_FALSE(Multiply(AddOnes("x", "one"))->execution().replayed());
  EXPECT_EQ(FirstElement("x"), 1.0f);
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, DeletingUnderAProductTakesNothingFromIt) {
  v1::SgemmRequest request = Product(8, 8, 8);
  const auto inlined = Multiply(request);
  Keep(*request.mutable_b(), "b");
  backend_->gate().Close();
  auto product =
      std::async(std::launch::async, [&] { return Multiply(request); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  EXPECT_TRUE(Delete("b").ok());
  EXPECT_EQ(Multiply(request).status().code(), absl::StatusCode::kNotFound);
  backend_->gate().Open();
  const auto response = product.get();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->c() == inlined->c());
  WaitFor([&] { return store_->used_bytes() == 0; });
}

TEST_F(SgemmResidentTest, WhatDoesNotFitTheMatrixIsRefused) {
  v1::SgemmRequest kept = Product(4, 5, 6);
  Keep(*kept.mutable_b(), "b");
  v1::SgemmRequest request = kept;
  request.mutable_b()->set_rows(3);
  request.mutable_b()->set_cols(10);
  request.mutable_a()->set_cols(3);
  request.mutable_a()->set_rows(8);
  absl::Status status = Multiply(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BadField(status), "b");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the matrix b is 6 x 5"));
  request = kept;
  request.mutable_b()->set_leading_dimension(7);
  status = Multiply(request).status();
  EXPECT_EQ(BadField(status), "b.leading_dimension");
  request = kept;
  request.mutable_b()->set_matrix_id("no_such");
  status = Multiply(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.ResourceInfo")
                  .has_value());
  // An output that exists with another shape.
  request = kept;
  request.mutable_output()->mutable_resident()->set_matrix_id("b");
  status = Multiply(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("6 x 5"));
  // A product that no store can hold, and a time that no product may ask for.
  request = Product(5000, 5000, 1);
  request.mutable_output()->mutable_resident()->set_matrix_id("p");
  EXPECT_EQ(Multiply(request).status().code(), absl::StatusCode::kOutOfRange);
  request = Product(2, 2, 2);
  auto* ttl = request.mutable_output()->mutable_resident()->mutable_ttl();
  EXPECT_EQ(Multiply(request).status().code(),
            absl::StatusCode::kInvalidArgument);
  ttl->set_seconds(100LL * 365 * 24 * 3600);
  EXPECT_EQ(Multiply(request).status().code(), absl::StatusCode::kOutOfRange);
  ExpectNothingHeld();
}

TEST_F(SgemmResidentTest, AMatrixThatIsStillOnItsWayCannotBeUsed) {
  UploadStream stream(*stub_);
  ASSERT_TRUE(stream.SendHeader(Header("b", 6, 5)));
  WaitFor([&] { return List().contains("b"); });
  v1::SgemmRequest request = Product(4, 5, 6);
  request.mutable_b()->set_matrix_id("b");
  EXPECT_EQ(Multiply(request).status().code(),
            absl::StatusCode::kFailedPrecondition);
  stream.context.TryCancel();
  stream.Finish().IgnoreError();
}

}  // namespace
}  // namespace gemmd
