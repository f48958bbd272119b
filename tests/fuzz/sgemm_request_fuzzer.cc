// Any bytes: the decoder agrees with protobuf, and what it accepts can be
// judged and copied without a fault.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "server/rpc/operand_copy.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_validation.h"
#include "tests/fuzz/decoder_differential.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gemmd;
  const std::span<const uint8_t> message(data, size);
  const std::string difference = CompareWithGeneratedParser(message);
  if (!difference.empty()) {
    std::fprintf(stderr, "the parsers differ in %s\n", difference.c_str());
    std::abort();
  }
  const auto slices = CutIntoSlices(message, size);
  const auto fields = DecodeSgemm(slices);
  if (!fields.ok()) return 0;
  const auto plan = PlanSgemm(*fields, SgemmLimits{});
  if (!plan.ok()) return 0;
  std::vector<std::byte> input(plan->input_bytes);
  if (plan->reads_inputs()) {
    if (plan->a.is_inline()) CopyOperand(slices, plan->a, input.data());
    if (plan->b.is_inline()) CopyOperand(slices, plan->b, input.data());
  }
  std::vector<std::byte> c(plan->c.staged_bytes());
  if (plan->c.is_inline()) CopyOperand(slices, plan->c, c.data());
  return 0;
}
