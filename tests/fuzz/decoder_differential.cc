#include "tests/fuzz/decoder_differential.h"

#include <algorithm>
#include <bit>
#include <random>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gemmd/v1/matrix.pb.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/upload_decoder.h"

namespace gemmd {
namespace {

// The generated parser logs every string that is not UTF-8.
void SilenceProtobuf() {
  static const bool once = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(once);
}

// Collects the first difference.
class Comparison {
 public:
  explicit Comparison(std::span<const uint8_t> message) : message_(message) {}

  template <typename Ours, typename Theirs>
  void Equal(absl::string_view what, const Ours& ours, const Theirs& theirs) {
    if (difference_.empty() && !(ours == theirs)) {
      difference_ =
          absl::StrCat(what, ": ours ", ours, ", protobuf's ", theirs);
    }
  }

  void Text(absl::string_view what, const ShortText& ours,
            const std::string& theirs) {
    Equal(absl::StrCat(what, ".size"), ours.size, theirs.size());
    Equal(what, ours.head, theirs.substr(0, ShortText::kKeptBytes));
  }

  void Slice(absl::string_view what, const SharedMemorySliceFields& ours,
             const v1::SharedMemorySlice& theirs) {
    Text(absl::StrCat(what, ".region_id"), ours.region_id, theirs.region_id());
    Equal(absl::StrCat(what, ".offset"), ours.offset, theirs.offset());
  }

  void Float(absl::string_view what, const std::optional<float>& ours, bool has,
             float theirs) {
    Equal(absl::StrCat(what, " set"), ours.has_value(), has);
    Equal(what, std::bit_cast<uint32_t>(ours.value_or(0.0f)),
          std::bit_cast<uint32_t>(theirs));
  }

  void Operand(absl::string_view what, const std::optional<OperandFields>& ours,
               bool has, const v1::Operand& theirs);
  void Output(const OutputFields& ours, const v1::Output& theirs);
  void Duration(absl::string_view what,
                const std::optional<DurationFields>& ours, bool has,
                const google::protobuf::Duration& theirs);
  void Request(const SgemmFields& ours, const v1::SgemmRequest& theirs);
  void Header(const UploadHeaderFields& ours, const v1::UploadHeader& theirs);
  void Bytes(absl::string_view what, const ByteRange& ours,
             const std::string& theirs);

  const std::string& difference() const { return difference_; }

 private:
  std::span<const uint8_t> message_;
  std::string difference_;
};

void Comparison::Operand(absl::string_view what,
                         const std::optional<OperandFields>& ours, bool has,
                         const v1::Operand& theirs) {
  Equal(absl::StrCat(what, " set"), ours.has_value(), has);
  if (!ours.has_value() || !has) return;
  Equal(absl::StrCat(what, ".rows"), ours->rows, theirs.rows());
  Equal(absl::StrCat(what, ".cols"), ours->cols, theirs.cols());
  Equal(absl::StrCat(what, ".leading_dimension"), ours->leading_dimension,
        theirs.leading_dimension());
  Equal(absl::StrCat(what, ".matrix_id set"),
        std::holds_alternative<MatrixIdField>(ours->source),
        theirs.has_matrix_id());
  Equal(absl::StrCat(what, ".shared_memory set"),
        std::holds_alternative<SharedMemorySliceFields>(ours->source),
        theirs.has_shared_memory());
  Equal(absl::StrCat(what, ".data set"),
        std::holds_alternative<ByteRange>(ours->source), theirs.has_data());
  if (!difference_.empty()) return;
  if (theirs.has_matrix_id()) {
    Text(absl::StrCat(what, ".matrix_id"),
         std::get<MatrixIdField>(ours->source).id, theirs.matrix_id());
  } else if (theirs.has_shared_memory()) {
    Slice(absl::StrCat(what, ".shared_memory"),
          std::get<SharedMemorySliceFields>(ours->source),
          theirs.shared_memory());
  } else if (theirs.has_data()) {
    Bytes(absl::StrCat(what, ".data"), std::get<ByteRange>(ours->source),
          theirs.data());
  }
}

void Comparison::Bytes(absl::string_view what, const ByteRange& ours,
                       const std::string& theirs) {
  const auto bytes = message_.subspan(ours.offset, ours.size);
  Equal(what, std::string(bytes.begin(), bytes.end()), theirs);
}

void Comparison::Duration(absl::string_view what,
                          const std::optional<DurationFields>& ours, bool has,
                          const google::protobuf::Duration& theirs) {
  Equal(absl::StrCat(what, " set"), ours.has_value(), has);
  const DurationFields duration = ours.value_or(DurationFields{});
  Equal(absl::StrCat(what, ".seconds"), duration.seconds, theirs.seconds());
  Equal(absl::StrCat(what, ".nanos"), duration.nanos, theirs.nanos());
}

void Comparison::Output(const OutputFields& ours, const v1::Output& theirs) {
  // The members of the variant are in the order of the oneof's numbers.
  Equal("output destination", static_cast<int>(ours.index()),
        static_cast<int>(theirs.destination_case()));
  if (!difference_.empty()) return;
  if (theirs.has_resident()) {
    const auto& resident = std::get<ResidentOutputFields>(ours);
    Text("output.resident.matrix_id", resident.matrix_id,
         theirs.resident().matrix_id());
    Duration("output.resident.ttl", resident.ttl, theirs.resident().has_ttl(),
             theirs.resident().ttl());
  } else if (theirs.has_shared_memory()) {
    const auto& shared = std::get<SharedMemoryOutputFields>(ours);
    Equal("output.shared_memory.slice set", shared.slice.has_value(),
          theirs.shared_memory().has_slice());
    Slice("output.shared_memory.slice",
          shared.slice.value_or(SharedMemorySliceFields{}),
          theirs.shared_memory().slice());
    Equal("output.shared_memory.leading_dimension", shared.leading_dimension,
          theirs.shared_memory().leading_dimension());
  }
}

void Comparison::Request(const SgemmFields& ours,
                         const v1::SgemmRequest& theirs) {
  Equal("transpose_a", ours.transpose_a, theirs.transpose_a());
  Equal("transpose_b", ours.transpose_b, theirs.transpose_b());
  Float("alpha", ours.alpha, theirs.has_alpha(), theirs.alpha());
  Float("beta", ours.beta, theirs.has_beta(), theirs.beta());
  Equal("precision", ours.precision, static_cast<int32_t>(theirs.precision()));
  Equal("kernel set", ours.kernel.has_value(), theirs.has_kernel());
  Text("kernel", ours.kernel.value_or(ShortText{}), theirs.kernel());
  Equal("priority", ours.priority, static_cast<int32_t>(theirs.priority()));
  Text("request_id", ours.request_id, theirs.request_id());
  Output(ours.output, theirs.output());
  Operand("a", ours.a, theirs.has_a(), theirs.a());
  Operand("b", ours.b, theirs.has_b(), theirs.b());
  Operand("c", ours.c, theirs.has_c(), theirs.c());
}

void Comparison::Header(const UploadHeaderFields& ours,
                        const v1::UploadHeader& theirs) {
  Equal("header.rows", ours.rows, theirs.rows());
  Equal("header.cols", ours.cols, theirs.cols());
  Text("header.matrix_id", ours.matrix_id, theirs.matrix_id());
  Duration("header.ttl", ours.ttl, theirs.has_ttl(), theirs.ttl());
  Text("header.digest", ours.digest, theirs.digest());
  Equal("header.first_row", ours.first_row, theirs.first_row());
  Equal("header.row_count", ours.row_count, theirs.row_count());
}

// Parses `message` in both ways and, where both accept it, compares with
// `compare(comparison, ours, theirs)`.
template <typename Theirs, typename Decode, typename Compare>
std::string CompareParsers(std::span<const uint8_t> message, Decode decode,
                           Compare compare) {
  SilenceProtobuf();
  const std::string bytes(message.begin(), message.end());
  Theirs theirs;
  const bool accepted = theirs.ParseFromString(bytes);
  const auto slices = CutIntoSlices(message, std::hash<std::string>()(bytes));
  const auto ours = decode(slices);
  Comparison comparison(message);
  comparison.Equal("accepted", ours.ok(), accepted);
  if (ours.ok() && accepted) compare(comparison, *ours, theirs);
  return comparison.difference();
}

}  // namespace

std::vector<std::span<const uint8_t>> CutIntoSlices(
    std::span<const uint8_t> message, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::span<const uint8_t>> slices;
  while (!message.empty()) {
    const size_t most = random() % 4 == 0 ? 64 : 5;
    const size_t size = std::min<size_t>(random() % (most + 1), message.size());
    slices.push_back(message.first(size));
    message = message.subspan(size);
  }
  return slices;
}

std::string CompareWithGeneratedParser(std::span<const uint8_t> message) {
  return CompareParsers<v1::SgemmRequest>(
      message, DecodeSgemm,
      [](Comparison& comparison, const SgemmFields& ours,
         const v1::SgemmRequest& theirs) { comparison.Request(ours, theirs); });
}

std::string CompareStreamItem(std::span<const uint8_t> message) {
  return CompareParsers<v1::SgemmStreamRequest>(
      message, DecodeSgemmStream,
      [](Comparison& comparison, const SgemmStreamFields& ours,
         const v1::SgemmStreamRequest& theirs) {
        comparison.Equal("sequence", ours.sequence, theirs.sequence());
        comparison.Equal("request set", ours.request.has_value(),
                         theirs.has_request());
        comparison.Request(ours.request.value_or(SgemmFields{}),
                           theirs.request());
      });
}

std::string CompareUpload(std::span<const uint8_t> message) {
  return CompareParsers<v1::UploadMatrixRequest>(
      message, DecodeUpload,
      [](Comparison& comparison, const UploadFields& ours,
         const v1::UploadMatrixRequest& theirs) {
        const auto* header = std::get_if<UploadHeaderFields>(&ours);
        const auto* chunk = std::get_if<ByteRange>(&ours);
        comparison.Equal("header set", header != nullptr, theirs.has_header());
        comparison.Equal("chunk set", chunk != nullptr, theirs.has_chunk());
        if (!comparison.difference().empty()) return;
        if (header != nullptr) comparison.Header(*header, theirs.header());
        if (chunk != nullptr) {
          comparison.Bytes("chunk", *chunk, theirs.chunk());
        }
      });
}

}  // namespace gemmd
