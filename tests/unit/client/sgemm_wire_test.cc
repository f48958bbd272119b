// What is written by hand is what protobuf reads, and the other way round.

#include "client/sgemm_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "tests/support/client_matrices.h"

namespace gemmd::client {
namespace {

unsigned Seed() {
  static const unsigned seed = [] {
    const unsigned value = std::random_device{}();
    std::printf("seed %u\n", value);
    return value;
  }();
  return seed;
}

// Bits of every kind, NaN among them: numbers travel unread.
std::vector<float> RandomBits(size_t count) {
  static std::mt19937 random(Seed());
  std::vector<float> numbers(count);
  for (float& x : numbers) {
    const auto bits = static_cast<uint32_t>(random());
    std::memcpy(&x, &bits, sizeof x);
  }
  return numbers;
}

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

v1::SgemmRequest Sent(const SgemmCall& call) {
  const auto size = CheckCall(call);
  EXPECT_TRUE(size.ok()) << size.status();
  LentMemory lent;
  v1::SgemmRequest request;
  EXPECT_TRUE(request.ParseFromString(
      Flatten(EncodeSgemm(call, *size, SharedBlocks(), &lent))));
  return request;
}

// The operand's bytes are the rows of `x`, one after another.
void ExpectNumbers(const v1::Operand& operand, const MatrixView& x) {
  EXPECT_EQ(operand.rows(), static_cast<uint64_t>(x.rows));
  EXPECT_EQ(operand.cols(), static_cast<uint64_t>(x.cols));
  EXPECT_EQ(operand.leading_dimension(), 0u);
  ASSERT_EQ(operand.source_case(), v1::Operand::kData);
  ASSERT_EQ(operand.data().size(), PackedBytes(x));
  if (IsEmpty(x)) return;
  for (int64_t i = 0; i < x.rows; ++i) {
    EXPECT_EQ(std::memcmp(operand.data().data() + i * x.cols * 4,
                          x.data + i * LeadingDimension(x), x.cols * 4),
              0)
        << "row " << i;
  }
}

TEST(SgemmEncodeTest, ProtobufReadsEveryField) {
  const std::vector<float> numbers = RandomBits(100);
  const SgemmCall call = {.a = {numbers.data(), 4, 2, 0},
                          .b = {numbers.data() + 8, 3, 4, 0},
                          .c = {numbers.data() + 20, 2, 3, 7},
                          .transpose_a = true,
                          .transpose_b = true,
                          .alpha = -0.5f,
                          .beta = 2.0f,
                          .precision = SgemmCall::Precision::kTf32,
                          .kernel = "naive",
                          .priority = SgemmCall::Priority::kBulk};
  const v1::SgemmRequest request = Sent(call);
  EXPECT_TRUE(request.transpose_a());
  EXPECT_TRUE(request.transpose_b());
  EXPECT_EQ(request.alpha(), -0.5f);
  EXPECT_EQ(request.beta(), 2.0f);
  EXPECT_EQ(request.precision(), v1::PRECISION_TF32);
  EXPECT_EQ(request.kernel(), "naive");
  EXPECT_EQ(request.priority(), v1::PRIORITY_BULK);
  EXPECT_FALSE(request.has_output());
  ExpectNumbers(request.a(), call.a.view());
  ExpectNumbers(request.b(), call.b.view());
  ExpectNumbers(request.c(), call.c.view());
}

TEST(SgemmEncodeTest, DefaultsAreLeftOut) {
  const std::vector<float> numbers = RandomBits(8);
  const v1::SgemmRequest request = Sent(
      {.a = {numbers.data(), 2, 2, 0}, .b = {numbers.data() + 4, 2, 2, 0}});
  EXPECT_FALSE(request.has_alpha());
  EXPECT_FALSE(request.has_beta());
  EXPECT_FALSE(request.has_kernel());
  EXPECT_FALSE(request.has_c());
  EXPECT_EQ(request.precision(), v1::PRECISION_FP32);
}

TEST(SgemmEncodeTest, EverySizeAndPaddingIsReadBack) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 200; ++round) {
    const int64_t m = random() % 70, n = random() % 70, k = random() % 70;
    const int64_t lda = random() % 2 ? 0 : k + random() % 9;
    const int64_t ldb = random() % 2 ? 0 : n + random() % 9;
    const std::vector<float> a = RandomBits(m * (k + 9));
    const std::vector<float> b = RandomBits(k * (n + 9));
    SCOPED_TRACE(absl::StrCat(m, " ", n, " ", k, " ", lda, " ", ldb));
    const SgemmCall call = {.a = {a.data(), m, k, lda},
                            .b = {b.data(), k, n, ldb}};
    const v1::SgemmRequest request = Sent(call);
    ExpectNumbers(request.a(), call.a.view());
    ExpectNumbers(request.b(), call.b.view());
  }
}

TEST(SgemmEncodeTest, AnEmptyProductWithBetaCarriesAnEmptyC) {
  const std::vector<float> numbers = RandomBits(12);
  const v1::SgemmRequest request = Sent(
      {.a = {nullptr, 0, 4, 0}, .b = {numbers.data(), 4, 3, 0}, .beta = 1.0f});
  EXPECT_TRUE(request.has_c());
  EXPECT_EQ(request.c().rows(), 0u);
  EXPECT_EQ(request.c().cols(), 3u);
}

TEST(SgemmEncodeTest, PackedOperandsAreSentFromWhereTheyLie) {
  const std::vector<float> a = RandomBits(100 * 100);
  const std::vector<float> b = RandomBits(100 * 120);
  const SgemmCall call = {.a = {a.data(), 100, 100, 0},
                          .b = {b.data(), 100, 100, 120}};  // padded
  LentMemory lent;
  {
    const grpc::ByteBuffer request =
        EncodeSgemm(call, *CheckCall(call), SharedBlocks(), &lent);
    EXPECT_FALSE(lent.AllReturned());
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(request.Dump(&slices).ok());
    const auto is_within = [&](const std::vector<float>& memory) {
      return std::any_of(slices.begin(), slices.end(), [&](const auto& slice) {
        const auto* begin = reinterpret_cast<const float*>(slice.begin());
        return begin >= memory.data() && begin < memory.data() + memory.size();
      });
    };
    EXPECT_TRUE(is_within(a));
    EXPECT_FALSE(is_within(b));
  }
  EXPECT_TRUE(lent.AllReturned());
}

// `bytes` in slices of up to `most`, as a network delivers them.
grpc::ByteBuffer InSlices(const std::string& bytes, size_t most,
                          std::mt19937& random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t take = std::min(bytes.size() - at, 1 + random() % most);
    slices.emplace_back(bytes.substr(at, take));
    at += take;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::SgemmResponse Response(int64_t m, int64_t n,
                           const std::vector<float>& numbers) {
  v1::SgemmResponse response;
  response.set_rows(m);
  response.set_cols(n);
  response.mutable_c()->assign(reinterpret_cast<const char*>(numbers.data()),
                               4 * numbers.size());
  response.mutable_execution()->set_kernel("naive");
  response.mutable_execution()->set_device(3);
  response.mutable_execution()->set_precision(v1::PRECISION_FP32_EMULATED);
  response.mutable_execution()->set_batch_size(5);
  response.mutable_execution()->set_queue_seconds(0.25);
  return response;
}

TEST(SgemmDecodeTest, ReadsWhatProtobufWritesHoweverItIsSliced) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 200; ++round) {
    const int64_t m = random() % 40, n = random() % 40;
    const int64_t ld = n + random() % 3;
    const std::vector<float> numbers = RandomBits(m * n);
    const std::vector<float> poison = RandomBits(m * ld + 1);
    std::vector<float> c = poison;
    grpc::ByteBuffer answer = InSlices(
        Response(m, n, numbers).SerializeAsString(), 1 + random() % 99, random);
    SgemmExecution execution;
    const MutableMatrixView to = {c.data(), m, n, ld};
    const absl::Status status =
        DecodeSgemm(&answer, {.m = m, .n = n}, &to, &execution);
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t i = 0; i < m; ++i) {
      const float* const row = c.data() + i * ld;
      EXPECT_TRUE(SameBits(row, numbers.data() + i * n, n));
      EXPECT_TRUE(SameBits(row + n, poison.data() + i * ld + n, ld - n));
    }
    EXPECT_EQ(execution.kernel, "naive");
    EXPECT_EQ(execution.device, 3u);
    EXPECT_EQ(execution.precision, SgemmCall::Precision::kFp32Emulated);
    EXPECT_EQ(execution.batch_size, 5u);
    EXPECT_EQ(execution.queue, absl::Milliseconds(250));
  }
}

TEST(SgemmDecodeTest, TakesFieldsInAnyOrderAndUnknownOnes) {
  std::mt19937 random(Seed());
  const std::vector<float> numbers = RandomBits(6);
  v1::SgemmResponse c_only;
  c_only.set_c(Response(2, 3, numbers).c());
  v1::SgemmResponse rest = Response(2, 3, numbers);
  rest.clear_c();
  const std::string unknown("\xfa\x3e\x02hi", 5);  // field 1007, two bytes
  grpc::ByteBuffer answer =
      InSlices(c_only.SerializeAsString() + unknown + rest.SerializeAsString(),
               3, random);
  std::vector<float> c(6);
  const MutableMatrixView to = {c.data(), 2, 3, 0};
  SgemmExecution execution;
  const absl::Status status =
      DecodeSgemm(&answer, {.m = 2, .n = 3}, &to, &execution);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(SameBits(c.data(), numbers.data(), 6));
}

TEST(SgemmDecodeTest, RefusesAnAnswerOfAnotherShape) {
  std::mt19937 random(Seed());
  const std::vector<float> numbers = RandomBits(6);
  std::vector<float> c(6);
  const MutableMatrixView to = {c.data(), 2, 3, 0};
  SgemmExecution execution;
  for (const v1::SgemmResponse& wrong :
       {Response(3, 2, numbers), Response(2, 3, RandomBits(5)),
        Response(2, 3, RandomBits(7)), Response(2, 3, {}),
        v1::SgemmResponse()}) {
    grpc::ByteBuffer answer = InSlices(wrong.SerializeAsString(), 9, random);
    const absl::Status status =
        DecodeSgemm(&answer, {.m = 2, .n = 3}, &to, &execution);
    EXPECT_TRUE(absl::IsInternal(status)) << wrong.ShortDebugString();
  }
}

TEST(SgemmDecodeTest, RefusesEveryTruncationAndSurvivesEveryMutation) {
  std::mt19937 random(Seed());
  const std::string good = Response(2, 3, RandomBits(6)).SerializeAsString();
  std::vector<float> c(6);
  const MutableMatrixView to = {c.data(), 2, 3, 0};
  SgemmExecution execution;
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    grpc::ByteBuffer answer = InSlices(good.substr(0, bytes), 9, random);
    EXPECT_FALSE(DecodeSgemm(&answer, {.m = 2, .n = 3}, &to, &execution).ok())
        << bytes;
  }
  // Protobuf writes each name that is no UTF-8 to the log.
  google::protobuf::LogHandler* const log =
      google::protobuf::SetLogHandler(nullptr);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (int i = 1 + random() % 3; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    grpc::ByteBuffer answer = InSlices(bytes, 9, random);
    (void)DecodeSgemm(&answer, {.m = 2, .n = 3}, &to, &execution);
  }
  google::protobuf::SetLogHandler(log);
}

}  // namespace
}  // namespace gemmd::client
