// Any bytes, as a message of an upload and as one of a stream of products: the
// decoders agree with protobuf, and what they accept can be judged and copied
// without a fault.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/rpc/operand_copy.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_validation.h"
#include "server/rpc/upload_decoder.h"
#include "server/rpc/upload_validation.h"
#include "tests/fuzz/decoder_differential.h"

namespace gemmd {
namespace {

void Check(const std::string& difference) {
  if (difference.empty()) return;
  std::fprintf(stderr, "the parsers differ in %s\n", difference.c_str());
  std::abort();
}

void CheckUpload(std::span<const std::span<const uint8_t>> slices) {
  const auto fields = DecodeUpload(slices);
  if (!fields.ok()) return;
  if (const auto* chunk = std::get_if<ByteRange>(&*fields)) {
    std::vector<std::byte> copied(chunk->size);
    CopyBytes(slices, *chunk, copied.data());
  }
  const auto* header = std::get_if<UploadHeaderFields>(&*fields);
  if (header == nullptr) return;
  const auto spec = PlanUpload(*header);
  if (spec.ok() && (spec->first_row < 0 || spec->row_count < 0 ||
                    spec->row_count > spec->rows - spec->first_row)) {
    std::abort();
  }
}

void CheckItem(std::span<const std::span<const uint8_t>> slices) {
  const auto fields = DecodeSgemmStream(slices);
  if (!fields.ok() || !fields->request.has_value()) return;
  // Every place that an operand can be in.
  const auto plan =
      PlanSgemm(*fields->request, {.resident = true, .shared_memory = true});
  if (!plan.ok()) return;
  std::vector<std::byte> input(plan->input_bytes);
  for (const OperandPlan* operand : {&plan->a, &plan->b}) {
    if (plan->reads_inputs() && operand->is_inline()) {
      CopyOperand(slices, *operand, input.data());
    }
  }
}

}  // namespace
}  // namespace gemmd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gemmd;
  const std::span<const uint8_t> message(data, size);
  Check(CompareUpload(message));
  Check(CompareStreamItem(message));
  const auto slices = CutIntoSlices(message, size);
  CheckUpload(slices);
  CheckItem(slices);
  return 0;
}
