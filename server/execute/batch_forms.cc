#include "server/execute/batch_forms.h"

#include <utility>

namespace gemmd {

const void* BatchForms::Find(const OperandForm& form) const {
  if (form.ready()) return form.data();
  for (const Made& made : made_) {
    if (made.form.get() == &form && made.enqueued) return form.data();
  }
  return nullptr;
}

absl::StatusOr<PreparedOperands> BatchForms::Use(const TaskSpec& spec,
                                                 const SgemmArgs& args,
                                                 CUstream_st* stream) {
  const PreparedSgemm& kernel = *spec.kernel->prepared();
  PreparedOperands operands;
  if (!kernel.UsesForms(args)) return operands;
  absl::Status status;
  const auto use = [&](const TaskOperand& operand, const float* x,
                       int64_t ld) -> const void* {
    if (operand.form == nullptr || !status.ok()) return nullptr;
    if (operand.form->BeginFill()) {
      status = kernel.Prepare(x, ld, operand.resident->rows(),
                              operand.resident->cols(), operand.form->key().k,
                              operand.form->data(), stream);
      made_.push_back({operand.form, status.ok()});
    }
    return Find(*operand.form);
  };
  operands.a = use(spec.a, args.a, args.lda);
  operands.b = use(spec.b, args.b, args.ldb);
  if (!status.ok()) return status;
  return operands;
}

void BatchForms::End(bool sound) {
  for (const Made& made : std::exchange(made_, {})) {
    made.form->EndFill(sound && made.enqueued);
  }
}

}  // namespace gemmd
