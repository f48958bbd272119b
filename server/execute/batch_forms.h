// The forms of resident operands that a batch uses, and those that it makes.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/prepared_sgemm.h"
#include "server/schedule/task.h"

namespace gemmd {

// A form is made by the first batch that needs it, on that batch's own stream,
// just before the product. Batches on other streams that need it before that
// one has ended do without: their products make it in their workspace, which
// gives the same bits and waits for nobody.
//
// Thread-compatible. End is called after the last Use, before it goes.
class BatchForms {
 public:
  // The forms for the product `args` of a task of this batch, good for a launch
  // on `stream`, which is always the same; makes those that nobody has made.
  // INTERNAL if that fails.
  absl::StatusOr<PreparedOperands> Use(const TaskSpec& spec,
                                       const SgemmArgs& args,
                                       CUstream_st* stream);

  // The stream has come to its end: what was made is everybody's, unless the
  // device has failed.
  void End(bool sound);

 private:
  struct Made {
    std::shared_ptr<OperandForm> form;
    bool enqueued;  // all of it
  };

  // What a launch may read now; null: nothing.
  const void* Find(const OperandForm& form) const;

  std::vector<Made> made_;
};

}  // namespace gemmd
