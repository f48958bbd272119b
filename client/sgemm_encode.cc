#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/sgemm_wire.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/protobuf/io/coded_stream.h"

namespace gemmd::client {
namespace {

// On the wire numbers are little-endian, as they are in memory here.
static_assert(std::endian::native == std::endian::little);

using google::protobuf::io::CodedOutputStream;

// Below this, a slice of its own costs more than the copy.
constexpr size_t kCopyBytes = 4096;

constexpr uint32_t Tag(int field, int wire_type) {
  return static_cast<uint32_t>(field) << 3 | wire_type;
}
constexpr int kVarint = 0;
constexpr int kLength = 2;

void AppendVarint(uint64_t value, std::string* out) {
  uint8_t bytes[10];
  const uint8_t* end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

// Collects a message: small fields in `text`, numbers in slices.
class Message {
 public:
  explicit Message(LentMemory* lent) : lent_(lent) {}

  std::string* text() { return &text_; }
  void AddNumbers(const MatrixView& x);
  grpc::ByteBuffer Finish() {
    FlushText();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  void FlushText() {
    if (!text_.empty()) slices_.emplace_back(text_);
    text_.clear();
  }

  LentMemory* const lent_;
  std::string text_;
  std::vector<grpc::Slice> slices_;
};

// Writes the rows of `x` one after another to `to`.
void PackRows(const MatrixView& x, char* to) {
  const size_t row_bytes = sizeof(float) * x.cols;
  for (int64_t i = 0; i < x.rows; ++i) {
    std::memcpy(to + i * row_bytes, x.data + i * LeadingDimension(x),
                row_bytes);
  }
}

void Message::AddNumbers(const MatrixView& x) {
  const size_t bytes = PackedBytes(x);
  if (bytes == 0) return;
  if (bytes <= kCopyBytes) {
    const size_t at = text_.size();
    text_.resize(at + bytes);
    PackRows(x, text_.data() + at);
    return;
  }
  FlushText();
  if (IsPacked(x)) {
    slices_.push_back(lent_->Lend(x.data, bytes));
    return;
  }
  grpc::Slice packed(bytes);
  PackRows(x, reinterpret_cast<char*>(const_cast<uint8_t*>(packed.begin())));
  slices_.push_back(std::move(packed));
}

void AddOperand(int field, const MatrixView& x, Message* message) {
  const size_t bytes = PackedBytes(x);
  std::string head;
  AppendVarint(Tag(v1::Operand::kRowsFieldNumber, kVarint), &head);
  AppendVarint(x.rows, &head);
  AppendVarint(Tag(v1::Operand::kColsFieldNumber, kVarint), &head);
  AppendVarint(x.cols, &head);
  AppendVarint(Tag(v1::Operand::kDataFieldNumber, kLength), &head);
  AppendVarint(bytes, &head);
  AppendVarint(Tag(field, kLength), message->text());
  AppendVarint(head.size() + bytes, message->text());
  message->text()->append(head);
  message->AddNumbers(x);
}

v1::Precision ToProto(SgemmCall::Precision precision) {
  switch (precision) {
    case SgemmCall::Precision::kFp32:
      break;
    case SgemmCall::Precision::kFp32Emulated:
      return v1::PRECISION_FP32_EMULATED;
    case SgemmCall::Precision::kTf32:
      return v1::PRECISION_TF32;
  }
  return v1::PRECISION_FP32;
}

}  // namespace

grpc::ByteBuffer EncodeSgemm(const SgemmCall& call, const ProductSize& size,
                             LentMemory* lent) {
  v1::SgemmRequest scalars;
  scalars.set_transpose_a(call.transpose_a);
  scalars.set_transpose_b(call.transpose_b);
  if (call.alpha != 1.0f) scalars.set_alpha(call.alpha);
  if (call.beta != 0.0f) scalars.set_beta(call.beta);
  scalars.set_precision(ToProto(call.precision));
  if (!call.kernel.empty()) scalars.set_kernel(call.kernel);
  if (call.priority == SgemmCall::Priority::kBulk) {
    scalars.set_priority(v1::PRIORITY_BULK);
  }

  Message message(lent);
  scalars.AppendToString(message.text());
  AddOperand(v1::SgemmRequest::kAFieldNumber, call.a, &message);
  AddOperand(v1::SgemmRequest::kBFieldNumber, call.b, &message);
  if (call.beta != 0.0f) {
    MatrixView c = call.c;
    c.rows = size.m;  // a product with nothing in it needs no c
    c.cols = size.n;
    AddOperand(v1::SgemmRequest::kCFieldNumber, c, &message);
  }
  return message.Finish();
}

}  // namespace gemmd::client
