// SgemmStream over a real connection.

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "tests/unit/server/rpc/matrix_fixture.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

class SgemmStreamTest : public MatrixFixture {
 protected:
  struct Stream {
    explicit Stream(v1::GemmService::Stub& stub)
        : stream(stub.SgemmStream(&context)) {}

    bool Send(uint64_t sequence, const v1::SgemmRequest& product) {
      v1::SgemmStreamRequest request;
      request.set_sequence(sequence);
      *request.mutable_request() = product;
      return stream->Write(request);
    }
    // The next answer; its sequence is 0 when there is none.
    v1::SgemmStreamResponse Receive() {
      v1::SgemmStreamResponse response;
      if (!stream->Read(&response)) response.Clear();
      return response;
    }
    absl::Status Finish() { return FromGrpcStatus(stream->Finish()); }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::SgemmStreamRequest,
                                             v1::SgemmStreamResponse>>
        stream;
  };

  void Occupy() {
    backend_->gate().Close();
    blocker_ = std::async(std::launch::async,
                          [&] { return Multiply(Product(3, 3, 3)).ok(); });
    WaitFor([&] { return backend_->gate().waiting() == 1; });
  }

  std::future<bool> blocker_;
};

TEST_F(SgemmStreamTest, ManyProductsAreAllAnsweredRight) {
  StartServer();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::map<uint64_t, v1::SgemmRequest> requests;
  for (uint64_t i = 1; i <= 200; ++i) {
    requests[i] =
        Product(random() % 70, random() % 70, random() % 70, random());
  }
  requests[77] = Product(600, 700, 800);  // 4 MiB: through a worker
  Stream stream(*stub_);
  std::thread sender([&] {
    for (const auto& [sequence, request] : requests) {
      EXPECT_TRUE(stream.Send(sequence, request));
    }
    stream.stream->WritesDone();
  });
  std::set<uint64_t> answered;
  v1::SgemmStreamResponse response;
  while (stream.stream->Read(&response)) {
    ASSERT_TRUE(response.has_response()) << response.error().message();
    ASSERT_TRUE(answered.insert(response.sequence()).second);
    ExpectProduct(requests.at(response.sequence()), response.response());
  }
  sender.join();
  EXPECT_EQ(answered.size(), 200);
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingHeld();
  EXPECT_THAT(metrics_.Render(), HasSubstr("gemmd_inflight_requests 0\n"));
}

TEST_F(SgemmStreamTest, AFailedItemDoesNotEndTheStream) {
  StartServer();
  Stream stream(*stub_);
  v1::SgemmRequest bad = Product(2, 2, 2);
  bad.mutable_a()->set_data("short");
  v1::SgemmRequest unknown = Product(2, 2, 2);
  unknown.mutable_b()->set_matrix_id("no_such");
  stream.stream->Write([] {
    v1::SgemmStreamRequest empty;
    empty.set_sequence(4);
    return empty;
  }());
  stream.Send(1, bad);
  stream.Send(2, unknown);
  stream.Send(3, Product(2, 2, 2));
  stream.stream->WritesDone();
  std::map<uint64_t, v1::SgemmStreamResponse> answers;
  v1::SgemmStreamResponse response;
  while (stream.stream->Read(&response))
    answers[response.sequence()] = response;
  EXPECT_TRUE(stream.Finish().ok());
  ASSERT_EQ(answers.size(), 4);
  absl::Status status = FromRpcStatus(answers.at(1).error());
  EXPECT_EQ(status.message(), "a.data has 5 bytes; rows * cols * 4 = 16");
  EXPECT_EQ(BadField(status), "a.data");
  EXPECT_EQ(FromRpcStatus(answers.at(2).error()).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(answers.at(3).has_response());
  EXPECT_EQ(BadField(FromRpcStatus(answers.at(4).error())), "request");
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, AnswersComeAsTheyFinish) {
  StartServer();
  Stream stream(*stub_);
  backend_->gate().Close();
  stream.Send(1, Product(8, 8, 8));
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  v1::SgemmRequest bad = Product(2, 2, 2);
  bad.set_precision(static_cast<v1::Precision>(9));
  stream.Send(2, bad);
  EXPECT_EQ(stream.Receive().sequence(), 2);
  backend_->gate().Open();
  EXPECT_EQ(stream.Receive().sequence(), 1);
  stream.stream->WritesDone();
  EXPECT_EQ(stream.Receive().sequence(), 0);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(SgemmStreamTest, NoMoreIsReadThanTheStreamMayHold) {
  RpcOptions options;
  options.stream_items = 5;
  StartServer(options);
  backend_->gate().Close();
  Stream stream(*stub_);
  for (int i = 1; i <= 20; ++i) ASSERT_TRUE(stream.Send(i, Product(9, 9, 9)));
  WaitFor([&] { return admission_->requests() == 5; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(admission_->requests(), 5);
  backend_->gate().Open();
  stream.stream->WritesDone();
  int answers = 0;
  while (stream.Receive().has_response()) ++answers;
  EXPECT_EQ(answers, 20);
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, NoMoreBytesAreReadThanTheStreamMayHold) {
  RpcOptions options;
  options.stream_bytes = 100'000;
  StartServer(options);
  backend_->gate().Close();
  Stream stream(*stub_);
  const v1::SgemmRequest product = Product(100, 100, 100);  // 80 KB in
  std::thread sender([&] {
    for (int i = 1; i <= 6; ++i) stream.Send(i, product);
    stream.stream->WritesDone();
  });
  WaitFor([&] { return admission_->requests() == 2; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(admission_->requests(), 2);
  backend_->gate().Open();
  int answers = 0;
  while (stream.Receive().has_response()) ++answers;
  sender.join();
  EXPECT_EQ(answers, 6);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(SgemmStreamTest, AFullServerSlowsTheStreamInsteadOfFailingIt) {
  // Room for two of the stream's twelve, of which a client may have four
  // fifths.
  admission_options_.max_bytes = 5 * 3 * 64 * 64 * 4 / 2 + 2000;
  StartServer();
  Stream stream(*stub_);
  const v1::SgemmRequest product = Product(64, 64, 64);
  for (int i = 1; i <= 12; ++i) ASSERT_TRUE(stream.Send(i, product));
  stream.stream->WritesDone();
  std::set<uint64_t> answered;
  v1::SgemmStreamResponse response;
  while (stream.stream->Read(&response)) {
    ASSERT_TRUE(response.has_response()) << response.error().message();
    answered.insert(response.sequence());
  }
  EXPECT_EQ(answered.size(), 12);
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, AStreamWithNothingToWaitForIsToldThatTheServerIsFull) {
  StartServer();
  auto all = admission_->Admit("other", admission_options_.max_bytes);
  ASSERT_TRUE(all.ok());
  Stream stream(*stub_);
  stream.Send(1, Product(4, 4, 4));
  const v1::SgemmStreamResponse response = stream.Receive();
  const absl::Status status = FromRpcStatus(response.error());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(status).has_value());
  *all = Admission::Ticket();
  stream.Send(2, Product(4, 4, 4));
  EXPECT_TRUE(stream.Receive().has_response());
  stream.stream->WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(SgemmStreamTest, AClientThatDoesNotReadHoldsNoMoreThanItsShare) {
  RpcOptions options;
  options.stream_items = 8;
  StartServer(options);
  Stream stream(*stub_);
  // Answers of 1 MiB, from next to nothing.
  std::atomic<int> sent{0};
  std::thread sender([&] {
    for (int i = 1; i <= 64; ++i) {
      if (stream.Send(i, Product(512, 512, 1))) ++sent;
    }
    stream.stream->WritesDone();
  });
  WaitFor([&] { return backend_->staging().used_bytes() >= 7 << 20; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(backend_->staging().used_bytes(), 20 << 20);
  int answers = 0;
  while (stream.Receive().has_response()) ++answers;
  sender.join();
  EXPECT_EQ(answers, 64);
  EXPECT_TRUE(stream.Finish().ok());
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, ACancelledStreamDropsWhatWaits) {
  StartServer();
  Occupy();
  Stream stream(*stub_);
  for (int i = 1; i <= 10; ++i) stream.Send(i, Product(9, 9, 9));
  WaitFor([&] { return scheduler_->queued_requests() == 10; });
  stream.context.TryCancel();
  EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kCancelled);
  WaitFor([&] { return admission_->requests() == 1; });  // the blocker
  backend_->gate().Open();
  EXPECT_TRUE(blocker_.get());
  ExpectNothingHeld();
  WaitFor([&] {
    return metrics_.Render().find(
               "grpc_server_call_completed_total{grpc_method=\"gemmd.v1."
               "GemmService/SgemmStream\",grpc_status=\"CANCELLED\"} 1") !=
           std::string::npos;
  });
}

TEST_F(SgemmStreamTest, AStreamPastItsDeadlineDropsWhatWaits) {
  StartServer();
  Occupy();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(100));
  auto stream = stub_->SgemmStream(&context);
  v1::SgemmStreamRequest request;
  *request.mutable_request() = Product(9, 9, 9);
  stream->Write(request);
  v1::SgemmStreamResponse response;
  stream->Read(&response);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitFor([&] { return admission_->requests() == 1; });
  backend_->gate().Open();
  EXPECT_TRUE(blocker_.get());
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, AMessageThatIsNoneEndsTheStreamOnceTheRestIsAnswered) {
  StartServer();
  backend_->gate().Close();
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub generic(channel_);
  auto stream = generic.PrepareCall(
      &context, "/gemmd.v1.GemmService/SgemmStream", &queue);
  const auto wait = [&] {
    void* tag;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  stream->StartCall(nullptr);
  ASSERT_TRUE(wait());
  v1::SgemmStreamRequest request;
  request.set_sequence(5);
  *request.mutable_request() = Product(4, 4, 4);
  for (const std::string& bytes :
       {request.SerializeAsString(), std::string("\xff\xff")}) {
    const grpc::Slice slice(bytes);
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ASSERT_TRUE(wait());
  }
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  backend_->gate().Open();
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  EXPECT_TRUE(wait());
  EXPECT_GT(answer.Length(), 64);
  stream->Read(&answer, nullptr);
  EXPECT_FALSE(wait());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("SgemmStreamRequest"));
  ExpectNothingHeld();
}

TEST_F(SgemmStreamTest, ADrainAnswersWhatRunsAndEndsTheStream) {
  StartServer();
  Stream idle(*stub_), busy(*stub_);
  idle.Send(1, Product(4, 4, 4));
  ASSERT_TRUE(idle.Receive().has_response());
  backend_->gate().Close();
  busy.Send(1, Product(8, 8, 8));
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  server_->RefuseNew(MonotonicClock::now() + std::chrono::seconds(5));
  EXPECT_EQ(idle.Receive().sequence(), 0);
  const absl::Status status = idle.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(RetryDelay(status).has_value());
  backend_->gate().Open();
  EXPECT_TRUE(busy.Receive().has_response());
  EXPECT_EQ(busy.Receive().sequence(), 0);
  EXPECT_EQ(busy.Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(
      server_->Shutdown(MonotonicClock::now() + std::chrono::seconds(5)));
}

TEST_F(SgemmStreamTest, ADrainLetsAStreamThatHasSentAllEndWell) {
  StartServer();
  Stream stream(*stub_);
  backend_->gate().Close();
  stream.Send(1, Product(8, 8, 8));
  stream.stream->WritesDone();
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server_->RefuseNew(MonotonicClock::now() + std::chrono::seconds(5));
  backend_->gate().Open();
  EXPECT_TRUE(stream.Receive().has_response());
  EXPECT_EQ(stream.Receive().sequence(), 0);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(SgemmStreamTest, StreamsThatComeAndGoAndBreakOffLeaveNothing) {
  StartServer();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 25; ++i) {
        Stream stream(*stub_);
        const int items = random() % 20;
        for (int k = 1; k <= items; ++k) {
          stream.Send(k, Product(random() % 90, random() % 90, random() % 90));
        }
        const int read = items == 0 ? 0 : random() % items;
        for (int k = 0; k < read; ++k) stream.Receive();
        if (random() % 2 == 0) {
          stream.context.TryCancel();
        } else {
          stream.stream->WritesDone();
        }
        while (stream.Receive().has_response()) {
        }
        stream.Finish().IgnoreError();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ExpectNothingHeld();
  WaitFor([&] {
    return metrics_.Render().find("gemmd_inflight_requests 0\n") !=
           std::string::npos;
  });
}

}  // namespace
}  // namespace gemmd
