#include <bit>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/packed_rows.h"
#include "client/residence.h"
#include "client/sgemm_wire.h"
#include "client/wire_bytes.h"
#include "gemmd/v1/sgemm.pb.h"

namespace gemmd::client {
namespace {

// On the wire numbers are little-endian, as they are in memory here.
static_assert(std::endian::native == std::endian::little);

// Below this, a slice of its own costs more than the copy.
constexpr size_t kCopyBytes = 4096;

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

void Message::AddNumbers(const MatrixView& x) {
  const size_t bytes = PackedBytes(x);
  if (bytes == 0) return;
  if (bytes <= kCopyBytes) {
    const size_t at = text_.size();
    text_.resize(at + bytes);
    CopyPacked(x, 0, bytes / sizeof(float), text_.data() + at);
    return;
  }
  FlushText();
  if (IsPacked(x)) {
    slices_.push_back(lent_->Lend(x.data, bytes));
    return;
  }
  grpc::Slice packed(bytes);
  CopyPacked(x, 0, bytes / sizeof(float), const_cast<uint8_t*>(packed.begin()));
  slices_.push_back(std::move(packed));
}

void SetSlice(const SharedPlace& place, v1::SharedMemorySlice* slice) {
  slice->set_region_id(place.block->region_id());
  slice->set_offset(place.offset);
}

void AppendBytes(int field, const std::string& bytes, std::string* out) {
  AppendTag(field, kLengthType, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

void AddOperand(int field, const Operand& x, const SharedBlocks& shared,
                Message* message) {
  std::string head;
  AppendTag(v1::Operand::kRowsFieldNumber, kVarintType, &head);
  AppendVarint(x.rows(), &head);
  AppendTag(v1::Operand::kColsFieldNumber, kVarintType, &head);
  AppendVarint(x.cols(), &head);
  size_t bytes = 0;
  if (x.residence() != nullptr) {
    AppendBytes(v1::Operand::kMatrixIdFieldNumber, x.residence()->id(), &head);
  } else if (const SharedPlace place = shared.Find(x.view());
             place.block != nullptr) {
    AppendTag(v1::Operand::kLeadingDimensionFieldNumber, kVarintType, &head);
    AppendVarint(LeadingDimension(x.view()), &head);
    v1::SharedMemorySlice slice;
    SetSlice(place, &slice);
    AppendBytes(v1::Operand::kSharedMemoryFieldNumber,
                slice.SerializeAsString(), &head);
  } else {
    bytes = PackedBytes(x.view());
    AppendTag(v1::Operand::kDataFieldNumber, kLengthType, &head);
    AppendVarint(bytes, &head);
  }
  AppendTag(field, kLengthType, message->text());
  AppendVarint(head.size() + bytes, message->text());
  message->text()->append(head);
  if (bytes > 0) message->AddNumbers(x.view());
}

void SetOutput(const ResidentOutput& from, v1::ResidentOutput* to) {
  to->set_matrix_id(from.into != nullptr ? from.into->id() : from.id);
  if (from.ttl.has_value()) *to->mutable_ttl() = DurationToProto(*from.ttl);
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
                             const SharedBlocks& shared, LentMemory* lent) {
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
  scalars.set_request_id(call.request_id);
  if (call.resident_output.has_value()) {
    SetOutput(*call.resident_output,
              scalars.mutable_output()->mutable_resident());
  } else if (const SharedPlace place = shared.Find(call.output);
             place.block != nullptr) {
    auto* to = scalars.mutable_output()->mutable_shared_memory();
    SetSlice(place, to->mutable_slice());
    to->set_leading_dimension(LeadingDimension(call.output));
  }

  Message message(lent);
  scalars.AppendToString(message.text());
  AddOperand(v1::SgemmRequest::kAFieldNumber, call.a, shared, &message);
  AddOperand(v1::SgemmRequest::kBFieldNumber, call.b, shared, &message);
  if (call.beta != 0.0f) {
    // A product with nothing in it needs no c.
    const bool empty = size.m == 0 || size.n == 0;
    AddOperand(v1::SgemmRequest::kCFieldNumber,
               empty ? Operand(nullptr, size.m, size.n) : call.c, shared,
               &message);
  }
  return message.Finish();
}

}  // namespace gemmd::client
