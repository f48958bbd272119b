// What is sent is copied once, into staging memory, and what is answered not at
// all.
//
// Every memcpy and memmove of the process is counted, those inside gRPC and
// protobuf too: this program has functions of its own by those names, which
// come before the C library's. The client here adds none: it sends and receives
// raw slices. System calls copy besides; a kernel that packs its operands does
// so in a way of its own.

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/unit/server/rpc/matrix_fixture.h"

namespace {

std::atomic<size_t> g_copied{0};

void Forward(void* to, const void* from, size_t size) {
  g_copied.fetch_add(size, std::memory_order_relaxed);
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

void Backward(void* to, const void* from, size_t size) {
  g_copied.fetch_add(size, std::memory_order_relaxed);
  if (size == 0) return;
  to = static_cast<char*>(to) + size - 1;
  from = static_cast<const char*>(from) + size - 1;
  asm volatile("std; rep movsb; cld"
               : "+D"(to), "+S"(from), "+c"(size)
               :
               : "memory");
}

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, size_t size) noexcept {
  Forward(to, from, size);
  return to;
}

void* memmove(void* to, const void* from, size_t size) noexcept {
  (to < from ? Forward : Backward)(to, from, size);
  return to;
}

void* __memcpy_chk(void* to, const void* from, size_t size, size_t) noexcept {
  return memcpy(to, from, size);
}

void* __memmove_chk(void* to, const void* from, size_t size, size_t) noexcept {
  return memmove(to, from, size);
}

}  // extern "C"

namespace gemmd {
namespace {

// Small fields, metadata, gRPC's own: what is not the matrices'.
constexpr size_t kSmall = 64 << 10;

class CopyCountTest : public MatrixFixture {
 protected:
  CopyCountTest() { StartServer(); }

  // A message that shares the text's bytes.
  static grpc::ByteBuffer Raw(const std::string& text) {
    const grpc::Slice slice(text.data(), text.size(),
                            grpc::Slice::STATIC_SLICE);
    return grpc::ByteBuffer(&slice, 1);
  }

  bool Wait() {
    void* tag;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  // Bytes copied while the call is made; its answer has `answer_bytes` or a few
  // more.
  size_t CopiedBy(const google::protobuf::Message& request,
                  size_t answer_bytes) {
    const std::string text = request.SerializeAsString();
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const size_t before = g_copied.load();
    auto call = stub.PrepareUnaryCall(&context, "/gemmd.v1.GemmService/Sgemm",
                                      Raw(text), &queue_);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    Wait();
    const size_t copied = g_copied.load() - before;
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_GE(answer.Length(), answer_bytes);
    EXPECT_LE(answer.Length(), answer_bytes + 1024);
    return copied;
  }

  grpc::CompletionQueue queue_;
};

TEST_F(CopyCountTest, TheCounterSeesCopies) {
  std::vector<char> from(1 << 20, 'x'), to(1 << 20);
  const size_t before = g_copied.load();
  memcpy(to.data(), from.data(), from.size());
  EXPECT_GE(g_copied.load() - before, from.size());
  EXPECT_EQ(to, from);
  memmove(from.data() + 1, from.data(), from.size() - 1);
  EXPECT_EQ(to, from);
}

TEST_F(CopyCountTest, InlineOperandsAreCopiedOnceAndTheAnswerNever) {
  v1::SgemmRequest request = Product(1000, 1000, 1000);
  constexpr size_t kMatrix = 4'000'000;
  request.set_kernel("openblas");
  CopiedBy(request, kMatrix);  // connects, warms up
  const size_t copied = CopiedBy(request, kMatrix);
  EXPECT_GE(copied, 2 * kMatrix);
  EXPECT_LE(copied, 2 * kMatrix + kSmall);
}

TEST_F(CopyCountTest, ResidentOperandsAndOutputsAreNotCopied) {
  v1::SgemmRequest request = Product(1000, 1000, 1000);
  Keep(*request.mutable_a(), "a");
  Keep(*request.mutable_b(), "b");
  EXPECT_LE(CopiedBy(request, 4'000'000), kSmall);
  request.mutable_output()->mutable_resident()->set_matrix_id("p");
  EXPECT_LE(CopiedBy(request, 0), kSmall);
}

TEST_F(CopyCountTest, ItemsOfAStreamAreCopiedOnceAndTheirAnswersNever) {
  v1::SgemmStreamRequest item;
  item.set_sequence(1);
  *item.mutable_request() = Product(1000, 1000, 1000);
  const std::string text = item.SerializeAsString();
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  auto stream =
      stub.PrepareCall(&context, "/gemmd.v1.GemmService/SgemmStream", &queue_);
  stream->StartCall(nullptr);
  ASSERT_TRUE(Wait());
  size_t copied = 0;
  for (int i = 0; i < 2; ++i) {
    const size_t before = g_copied.load();
    stream->Write(Raw(text), nullptr);
    ASSERT_TRUE(Wait());
    grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    ASSERT_TRUE(Wait());
    EXPECT_GE(answer.Length(), 4'000'000);
    copied = g_copied.load() - before;
  }
  EXPECT_GE(copied, 8'000'000);
  EXPECT_LE(copied, 8'000'000 + kSmall);
  stream->WritesDone(nullptr);
  Wait();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  Wait();
}

// On the CPU the copy to and from the device is a memcpy too.
TEST_F(CopyCountTest, ChunksAreCopiedOnceBesidesTheDevicesOwnCopy) {
  constexpr size_t kChunks = 8;
  const std::string data(kChunks * kChunk, 'x');
  v1::UploadMatrixRequest header;
  *header.mutable_header() = Header("x", kChunks, kChunk / 4);
  std::vector<std::string> messages = {header.SerializeAsString()};
  for (size_t i = 0; i < kChunks; ++i) {
    v1::UploadMatrixRequest chunk;
    chunk.set_chunk(data.substr(i * kChunk, kChunk));
    messages.push_back(chunk.SerializeAsString());
  }
  grpc::GenericStub stub(channel_);
  {
    grpc::ClientContext context;
    const size_t before = g_copied.load();
    auto call = stub.PrepareCall(&context, "/gemmd.v1.GemmService/UploadMatrix",
                                 &queue_);
    call->StartCall(nullptr);
    ASSERT_TRUE(Wait());
    for (const std::string& message : messages) {
      call->Write(Raw(message), nullptr);
      ASSERT_TRUE(Wait());
    }
    call->WritesDone(nullptr);
    ASSERT_TRUE(Wait());
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    ASSERT_TRUE(Wait());
    const size_t copied = g_copied.load() - before;
    EXPECT_GE(copied, 2 * data.size());
    EXPECT_LE(copied, 2 * data.size() + kSmall);
    grpc::Status status;
    call->Finish(&status, nullptr);
    Wait();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  v1::DownloadMatrixRequest request;
  request.set_matrix_id("x");
  const std::string text = request.SerializeAsString();
  grpc::ClientContext context;
  const size_t before = g_copied.load();
  auto call = stub.PrepareCall(&context, "/gemmd.v1.GemmService/DownloadMatrix",
                               &queue_);
  call->StartCall(nullptr);
  ASSERT_TRUE(Wait());
  call->Write(Raw(text), nullptr);
  ASSERT_TRUE(Wait());
  call->WritesDone(nullptr);
  ASSERT_TRUE(Wait());
  size_t received = 0;
  grpc::ByteBuffer answer;
  while (true) {
    call->Read(&answer, nullptr);
    if (!Wait()) break;
    received += answer.Length();
  }
  const size_t copied = g_copied.load() - before;
  EXPECT_GE(received, data.size());
  EXPECT_LE(copied, data.size() + kSmall);
  grpc::Status status;
  call->Finish(&status, nullptr);
  Wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace gemmd
