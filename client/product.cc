#include "client/product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/residence.h"
#include "client/sgemm_wire.h"
#include "client/transfer.h"

namespace gemmd::client {
namespace {

// Any server takes this much in a message.
constexpr uint64_t kAlwaysInline = uint64_t{1} << 20;
// Of the numbers, each way. Above, an item costs no less than a call.
constexpr uint64_t kMaxStreamed = uint64_t{64} << 10;
// m * n * k of an item: what the server does for it though nobody may wait for
// it any more. A row against a resident 8192 x 8192.
constexpr double kMaxStreamedProducts = 1 << 26;
// Of a message, for everything but the numbers.
constexpr uint64_t kMessageRoom = 4096;
// What is uploaded for one product lives so long if its client dies.
constexpr absl::Duration kMinTemporaryTtl = absl::Minutes(5);
constexpr absl::Duration kMaxTemporaryTtl = absl::Hours(1);
// A product has three operands; more often than that, it is no accident.
constexpr int kMaxRestores = 4;

// Of one message's numbers.
uint64_t InlineLimit(const ServerInfo::Limits& limits) {
  const uint64_t bytes =
      limits.max_inline_bytes == 0 ? kMaxNumberBytes : limits.max_inline_bytes;
  return std::min(bytes, kMaxNumberBytes) - std::min(bytes, kMessageRoom);
}

// Where the operand's numbers are in memory, if they are.
std::optional<MatrixView> InMemory(const Operand& x) {
  return x.residence() == nullptr ? x.view() : x.residence()->source();
}

}  // namespace

Product::Product(Session* session, const SgemmCall& call, Operation* operation)
    : session_(session),
      operation_(operation),
      call_(call),
      output_(call.output) {}

ResidentMatrix Product::NewMatrix(std::string id, int64_t rows, int64_t cols,
                                  bool owned) {
  return ResidentMatrix(std::make_shared<Residence>(session_->weak_from_this(),
                                                    std::move(id), rows, cols,
                                                    owned, std::nullopt));
}

absl::Duration Product::TemporaryTtl() const {
  return std::clamp(operation_->timeout(), kMinTemporaryTtl, kMaxTemporaryTtl);
}

absl::Status Product::Prepare() {
  const absl::StatusOr<ProductSize> size = CheckCall(call_);
  if (!size.ok()) return size.status();
  size_ = *size;
  if (!call_.resident_output.has_value()) {
    DrawCheck();
    return absl::OkStatus();
  }
  ResidentOutput& to = *call_.resident_output;
  const bool minted = to.into == nullptr && to.id.empty();
  if (!minted) ChangeInPlace(to.into != nullptr ? to.into->id() : to.id);
  if (to.into != nullptr) {
    Operand(*to.into).residence()->Written();
    return absl::OkStatus();
  }
  // Under an id of the caller's there may be a matrix already, which is only
  // ours when the product has taken its place.
  if (minted) to.id = NewId();
  new_output_ = NewMatrix(to.id, size_.m, size_.n, /*owned=*/minted);
  return absl::OkStatus();
}

void Product::ChangeInPlace(const std::string& id) {
  if (call_.request_id.empty()) call_.request_id = NewId();
  for (const Operand* x : {&call_.a, &call_.b, &call_.c}) {
    const auto& residence = x->residence();
    if (residence != nullptr && residence->id() == id) residence->Written();
  }
}

void Product::DrawCheck() {
  absl::BitGen random;
  if (!absl::Bernoulli(random, session_->options().verify_fraction)) return;
  const std::optional<MatrixView> a = InMemory(call_.a);
  const std::optional<MatrixView> b = InMemory(call_.b);
  const std::optional<MatrixView> c = InMemory(call_.c);
  if (!a.has_value() || !b.has_value() || !c.has_value()) return;
  check_.emplace(ProductCheck::Factors{.a = *a,
                                       .b = *b,
                                       .c = *c,
                                       .transpose_a = call_.transpose_a,
                                       .transpose_b = call_.transpose_b,
                                       .alpha = call_.alpha,
                                       .beta = call_.beta,
                                       .precision = call_.precision,
                                       .size = size_},
                 absl::Uniform<uint64_t>(random));
}

uint64_t Product::InlineBytes(const Operand& x) const {
  const bool travels = x.residence() == nullptr &&
                       session_->shared().Find(x.view()).block == nullptr;
  return travels ? PackedBytes(x.view()) : 0;
}

bool Product::IsOutputShared() const {
  return session_->shared().Find(call_.output).block != nullptr;
}

bool Product::IsAnyShared() const {
  const auto shared = [this](const Operand* x) {
    return x->residence() == nullptr &&
           session_->shared().Find(x->view()).block != nullptr;
  };
  return shared(&call_.a) || shared(&call_.b) || shared(&call_.c) ||
         IsOutputShared();
}

bool Product::AddsToSharedMemory() const {
  return call_.beta != 0 && IsOutputShared() &&
         call_.c.residence() == nullptr &&
         call_.c.view().data == call_.output.data;
}

Call::Parts Product::CallParts() {
  Call::Parts parts =
      session_->CallParts("/gemmd.v1.GemmService/Sgemm", operation_);
  parts.request = Encode(&parts.lent);
  parts.retry_refusals_alone = AddsToSharedMemory();
  return parts;
}

bool Product::IsOneRequest() const {
  const std::optional<ServerInfo::Limits> limits = session_->KnownLimits();
  const uint64_t limit =
      limits.has_value() ? InlineLimit(*limits) : kAlwaysInline;
  return LargestMessage() <= limit;
}

bool Product::IsSmall() const {
  return !call_.resident_output.has_value() && !IsAnyShared() &&
         LargestMessage() <= kMaxStreamed &&
         static_cast<double>(size_.m) * size_.n * size_.k <=
             kMaxStreamedProducts;
}

uint64_t Product::LargestMessage() const {
  const uint64_t request =
      InlineBytes(call_.a) + InlineBytes(call_.b) + InlineBytes(call_.c);
  const uint64_t answer = call_.resident_output.has_value() || IsOutputShared()
                              ? 0
                              : sizeof(float) * size_.m * size_.n;
  return std::max(request, answer);
}

grpc::ByteBuffer Product::Encode(LentMemory* lent) {
  sent_.Clear();
  for (const Operand* x : {&call_.a, &call_.b, &call_.c}) {
    if (x->residence() != nullptr) {
      sent_.Add(x->residence());
    } else {
      sent_.AddMemory(x->view(), session_->shared());
    }
  }
  sent_.AddMemory(call_.output, session_->shared());
  return EncodeSgemm(call_, size_, session_->shared(), lent);
}

absl::StatusOr<SgemmAnswer> Product::Decode(grpc::ByteBuffer response,
                                            int attempts) {
  SgemmAnswer answer;
  answer.attempts = attempts;
  const bool here = !call_.resident_output.has_value() && !IsOutputShared();
  MutableMatrixView c = output_;
  if (here && c.data == nullptr) {
    answer.c = Matrix(size_.m, size_.n);
    c = answer.c.mutable_view();
  }
  absl::Status status =
      DecodeSgemm(&response, size_, here ? &c : nullptr, &answer.execution);
  if (status.ok() && fetch_output_) status = FetchAnswer(&answer);
  if (status.ok()) status = Verify(&answer);
  if (!status.ok()) return status;
  if (new_output_ && !fetch_output_) {
    new_output_.residence_->SetOwned(true);
    answer.resident = std::move(new_output_);
  }
  answer.elapsed = operation_->elapsed();
  return answer;
}

absl::Status Product::FetchAnswer(SgemmAnswer* answer) {
  MutableMatrixView c = output_;
  if (c.data == nullptr) {
    answer->c = Matrix(size_.m, size_.n);
    c = answer->c.mutable_view();
  }
  return Download(*session_, new_output_.id(), 0, c, operation_);
}

absl::Status Product::Verify(SgemmAnswer* answer) {
  if (!check_.has_value()) return absl::OkStatus();
  answer->verified = true;
  return check_->Check(output_.data != nullptr ? output_ : answer->c.view());
}

bool Product::MayRestore(const absl::Status& status) const {
  // A matrix of which rows are still to come may be one that another thread is
  // restoring.
  const bool missing =
      absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  if (!missing || operation_->cancelled()) return false;
  // An answer that was lost between product and download is made again.
  if (fetch_output_ && MissingMatrix(status) == new_output_.id()) return true;
  return sent_.CanRestore(status);
}

absl::Status Product::MakeResident(Operand* operand) {
  const MatrixView view = operand->view();
  const UploadTarget target = {.id = NewId(), .ttl = TemporaryTtl()};
  auto residence = std::make_shared<Residence>(
      session_->weak_from_this(), target.id, view.rows, view.cols,
      /*owned=*/true, Residence::Source{view, target});
  absl::Status status = Upload(*session_, view, target, operation_);
  if (!status.ok()) return status;
  // X X^T needs X once.
  const auto same = [&](const Operand& x) {
    return x.residence() == nullptr && x.view().data == view.data &&
           x.rows() == view.rows && x.cols() == view.cols &&
           LeadingDimension(x.view()) == LeadingDimension(view);
  };
  const Operand resident{ResidentMatrix(std::move(residence))};
  for (Operand* x : {&call_.a, &call_.b, &call_.c}) {
    if (same(*x)) *x = resident;
  }
  return absl::OkStatus();
}

absl::Status Product::Fit() {
  if (IsOneRequest()) return absl::OkStatus();
  const absl::StatusOr<ServerInfo::Limits> limits =
      session_->Limits(operation_);
  if (!limits.ok()) return limits.status();
  if (IsOneRequest()) return absl::OkStatus();
  if (limits->matrix_store_bytes == 0) {
    return absl::OutOfRangeError(absl::StrCat(
        "the product does not fit in messages of ", InlineLimit(*limits),
        " bytes (the server's --max-inline-bytes), and the server keeps no "
        "matrices (--matrix-store-bytes is 0)"));
  }
  if (!call_.resident_output.has_value() && !IsOutputShared() &&
      sizeof(float) * size_.m * size_.n > InlineLimit(*limits)) {
    new_output_ = NewMatrix(NewId(), size_.m, size_.n, /*owned=*/true);
    call_.resident_output =
        ResidentOutput{.id = new_output_.id(), .ttl = TemporaryTtl()};
    call_.output = {};
    fetch_output_ = true;
  }
  const std::array<Operand*, 3> operands = {&call_.a, &call_.b, &call_.c};
  while (!IsOneRequest()) {
    Operand* const largest =
        *std::max_element(operands.begin(), operands.end(),
                          [this](const Operand* x, const Operand* y) {
                            return InlineBytes(*x) < InlineBytes(*y);
                          });
    absl::Status status = MakeResident(largest);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SgemmAnswer> Product::SendOnce() {
  Call::Parts parts = CallParts();
  absl::StatusOr<SgemmAnswer> answer;
  parts.done = [&](absl::StatusOr<grpc::ByteBuffer> result, int attempts) {
    if (result.ok()) {
      answer = Decode(*std::move(result), attempts);
    } else {
      answer = result.status();
    }
  };
  Call call(std::move(parts));
  const Operation::Step step(operation_, [&call] { call.Cancel(); });
  RunCall(&call, session_->options().busy_poll);
  return answer;
}

absl::StatusOr<SgemmAnswer> Product::Run(absl::Status failed) {
  for (int restores = 0;;) {
    absl::Status status = failed;
    if (status.ok()) {
      status = Fit();
      if (!status.ok()) return status;
      absl::StatusOr<SgemmAnswer> answer = SendOnce();
      if (answer.ok()) return answer;
      status = answer.status();
    }
    failed = absl::OkStatus();
    if (!MayRestore(status) || ++restores > kMaxRestores) return status;
    status = sent_.Restore(status, *session_, operation_);
    if (!status.ok()) return status;
  }
}

}  // namespace gemmd::client
