// The decoder against protobuf's generated parser, over messages made, bent and
// kept from fuzzing.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "gemmd/v1/matrix.pb.h"
#include "gemmd/v1/sgemm.pb.h"
#include "tests/fuzz/decoder_differential.h"

namespace gemmd {
namespace {

using Random = std::mt19937_64;

std::string Compare(const std::string& message) {
  return CompareWithGeneratedParser(
      {reinterpret_cast<const uint8_t*>(message.data()), message.size()});
}

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const unsigned char c : bytes) {
    hex += "0123456789abcdef"[c >> 4];
    hex += "0123456789abcdef"[c & 15];
  }
  return hex;
}

std::string RandomBytes(Random& random, size_t most) {
  std::string bytes(random() % (most + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::string RandomText(Random& random) {
  static constexpr const char* kTexts[] = {
      "", "auto", "\u20ac\u00e9", "matrix-1", "x\U0001F600",
  };
  if (random() % 8 == 0) return std::string(random() % 700, 'n');
  return kTexts[random() % std::size(kTexts)];
}

void FillSlice(Random& random, v1::SharedMemorySlice& slice) {
  if (random() % 2) slice.set_region_id(RandomBytes(random, 20));
  if (random() % 2) slice.set_offset(random() >> (random() % 64));
}

void FillOperand(Random& random, v1::Operand& operand) {
  if (random() % 2) operand.set_rows(random() >> (random() % 64));
  if (random() % 2) operand.set_cols(random() >> (random() % 64));
  if (random() % 2) operand.set_leading_dimension(random() % 1000);
  switch (random() % 4) {
    case 0:
      operand.set_matrix_id(RandomText(random));
      break;
    case 1:
      FillSlice(random, *operand.mutable_shared_memory());
      break;
    case 2:
      operand.set_data(RandomBytes(random, 60));
      break;
  }
}

void FillOutput(Random& random, v1::Output& output) {
  switch (random() % 4) {
    case 0:
      output.mutable_inline_();
      break;
    case 1:
      output.mutable_resident()->set_matrix_id(RandomText(random));
      if (random() % 2) {
        auto* ttl = output.mutable_resident()->mutable_ttl();
        ttl->set_seconds(static_cast<int64_t>(random()));
        ttl->set_nanos(static_cast<int32_t>(random()));
      }
      break;
    case 2:
      output.mutable_shared_memory()->set_leading_dimension(random() % 99);
      if (random() % 2) {
        FillSlice(random, *output.mutable_shared_memory()->mutable_slice());
      }
      break;
  }
}

v1::SgemmRequest RandomRequest(Random& random) {
  v1::SgemmRequest request;
  if (random() % 2) request.set_transpose_a(true);
  if (random() % 2) request.set_transpose_b(true);
  if (random() % 2) request.set_alpha(static_cast<float>(random() % 5));
  if (random() % 2) request.set_beta(static_cast<float>(random() % 5));
  if (random() % 2) {
    request.set_precision(static_cast<v1::Precision>(random() % 9 - 3));
  }
  if (random() % 2) request.set_kernel(RandomText(random));
  if (random() % 2) request.set_priority(static_cast<v1::Priority>(random()));
  if (random() % 2) request.set_request_id(RandomText(random));
  if (random() % 2) FillOutput(random, *request.mutable_output());
  if (random() % 2) FillOperand(random, *request.mutable_a());
  if (random() % 2) FillOperand(random, *request.mutable_b());
  if (random() % 2) FillOperand(random, *request.mutable_c());
  return request;
}

// A varint of any length from the shortest to 11 bytes.
void AppendVarint(Random& random, uint64_t value, std::string& out) {
  const int padding = random() % 6 == 0 ? random() % 11 : 0;
  int bytes = 1;
  for (; value >= 0x80; value >>= 7, ++bytes) {
    out += static_cast<char>(value | 0x80);
  }
  if (bytes >= padding) {
    out += static_cast<char>(value);
    return;
  }
  out += static_cast<char>(value | 0x80);
  for (; bytes + 1 < padding; ++bytes) out += '\x80';
  out += static_cast<char>(random() % 4 == 0 ? random() % 128 : 0);
}

// Fields that no good encoder makes: any wire type, known and unknown numbers,
// groups, sizes that lie.
std::string RandomFields(Random& random, int depth) {
  static constexpr uint32_t kNumbers[] = {
      0, 1, 1, 2,  2,  3,   3,   4,   5,   5,   6,   7,
      8, 9, 9, 11, 99, 100, 100, 100, 101, 102, 103, (1u << 29) - 1};
  std::string out;
  for (int fields = random() % 5; fields > 0; --fields) {
    const uint32_t number = kNumbers[random() % std::size(kNumbers)];
    uint32_t type = random() % 3 == 0 ? random() % 8 : random() % 2 * 2;
    if (type == 4 && random() % 8 != 0) type = 5;
    AppendVarint(random, number << 3 | type, out);
    switch (type) {
      case 0:
        AppendVarint(random, random() >> (random() % 64), out);
        break;
      case 1:
        out += std::string("12345678");
        break;
      case 2: {
        const std::string body =
            depth < 4 ? RandomFields(random, depth + 1) : RandomText(random);
        const bool lie = random() % 16 == 0;
        AppendVarint(random, lie ? random() >> (random() % 64) : body.size(),
                     out);
        out += body;
        break;
      }
      case 3:
        out += depth < 4 ? RandomFields(random, depth + 1) : "";
        AppendVarint(random, number << 3 | 4, out);
        break;
      case 5:
        out += std::string("1234");
        break;
    }
  }
  return out;
}

std::string Bent(Random& random, std::string message) {
  for (int bends = 1 + random() % 3; bends > 0; --bends) {
    const size_t at = message.empty() ? 0 : random() % message.size();
    const size_t size = random() % 12;
    switch (random() % 5) {
      case 0:
        if (!message.empty()) message[at] ^= 1 << random() % 8;
        break;
      case 1:
        message.resize(at);
        break;
      case 2:
        message.insert(at, RandomBytes(random, 4));
        break;
      case 3:
        message.erase(at, size);
        break;
      case 4:
        message.insert(at, message.substr(at, size));
        break;
    }
  }
  return message;
}

class SgemmDifferentialTest : public testing::Test {
 protected:
  SgemmDifferentialTest() : seed_(std::random_device()()), random_(seed_) {}

  // Compares many messages and checks that both verdicts occurred.
  template <typename Make>
  void CompareMany(int count, Make make) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    int accepted = 0;
    for (int i = 0; i < count; ++i) {
      const std::string message = make();
      const std::string difference = Compare(message);
      ASSERT_EQ(difference, "") << Hex(message);
      accepted += v1::SgemmRequest().ParseFromString(message);
    }
    EXPECT_GT(accepted, count / 20);
    accepted_ = accepted;
  }

  const uint64_t seed_;
  Random random_;
  int accepted_ = 0;
};

TEST_F(SgemmDifferentialTest, WellFormedMessagesDecodeAlike) {
  CompareMany(3000, [&] { return RandomRequest(random_).SerializeAsString(); });
  EXPECT_EQ(accepted_, 3000);
}

TEST_F(SgemmDifferentialTest, JoinedMessagesMergeAlike) {
  CompareMany(3000, [&] {
    return RandomRequest(random_).SerializeAsString() +
           RandomRequest(random_).SerializeAsString();
  });
  EXPECT_EQ(accepted_, 3000);
}

TEST_F(SgemmDifferentialTest, BentMessagesGetOneVerdict) {
  CompareMany(10000, [&] {
    return Bent(random_, RandomRequest(random_).SerializeAsString());
  });
}

TEST_F(SgemmDifferentialTest, ArbitraryFieldsGetOneVerdict) {
  CompareMany(20000, [&] { return RandomFields(random_, 0); });
}

v1::SgemmStreamRequest RandomItem(Random& random) {
  v1::SgemmStreamRequest item;
  if (random() % 2) item.set_sequence(random() >> (random() % 64));
  if (random() % 4) *item.mutable_request() = RandomRequest(random);
  return item;
}

v1::UploadMatrixRequest RandomUpload(Random& random) {
  v1::UploadMatrixRequest message;
  if (random() % 3 == 0) {
    message.set_chunk(RandomBytes(random, 60));
  } else {
    v1::UploadHeader& header = *message.mutable_header();
    if (random() % 2) header.set_rows(random() >> (random() % 64));
    if (random() % 2) header.set_cols(random() >> (random() % 64));
    if (random() % 2) header.set_matrix_id(RandomText(random));
    if (random() % 2) header.mutable_ttl()->set_nanos(random() % 99);
    if (random() % 2) header.set_digest(RandomBytes(random, 40));
    if (random() % 2) header.set_first_row(random() >> (random() % 64));
    if (random() % 2) header.set_row_count(random() >> (random() % 64));
  }
  return message;
}

// Well-formed, joined, bent and arbitrary ones.
template <typename Make, typename Parse>
void CompareKinds(Random& random, Make make, Parse compare) {
  for (int i = 0; i < 8000; ++i) {
    std::string message = make(random).SerializeAsString();
    switch (i % 4) {
      case 0:
        break;
      case 1:
        message += make(random).SerializeAsString();
        break;
      case 2:
        message = Bent(random, std::move(message));
        break;
      case 3:
        message = RandomFields(random, 0);
        break;
    }
    ASSERT_EQ(compare({reinterpret_cast<const uint8_t*>(message.data()),
                       message.size()}),
              "")
        << Hex(message);
  }
}

TEST_F(SgemmDifferentialTest, ItemsOfAStreamDecodeAlike) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  CompareKinds(random_, RandomItem, CompareStreamItem);
}

TEST_F(SgemmDifferentialTest, MessagesOfAnUploadDecodeAlike) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  CompareKinds(random_, RandomUpload, CompareUpload);
}

TEST_F(SgemmDifferentialTest, TheCorpusOfTheFuzzersGetsOneVerdict) {
  int files = 0;
  const std::string corpus = GEMMD_CORPUS;
  for (const auto& folder :
       {corpus + "/sgemm_request", corpus + "/upload_request"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string message{std::istreambuf_iterator<char>(in), {}};
      const std::span<const uint8_t> bytes(
          reinterpret_cast<const uint8_t*>(message.data()), message.size());
      EXPECT_EQ(CompareWithGeneratedParser(bytes), "") << entry.path();
      EXPECT_EQ(CompareStreamItem(bytes), "") << entry.path();
      EXPECT_EQ(CompareUpload(bytes), "") << entry.path();
      ++files;
    }
  }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace gemmd
