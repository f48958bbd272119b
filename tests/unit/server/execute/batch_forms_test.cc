#include "server/execute/batch_forms.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/unit/server/schedule/fakes.h"
#include "tests/unit/server/store/fake_forms.h"

namespace gemmd {
namespace {

class FormKernel : public FakeKernel {
 public:
  FormKernel() : FakeKernel("forms") {}
  const PreparedSgemm* prepared() const override { return &forms; }
  FakeForms forms;
};

// A product of two matrices of 2 x 2 that stay, each with an empty form.
class BatchFormsTest : public ::testing::Test {
 protected:
  BatchFormsTest() {
    spec_.kernel = &kernel_;
    spec_.shape = {.m = 2, .n = 2, .k = 2};
    args_.shape = spec_.shape;
    args_.lda = args_.ldb = args_.ldc = 2;
    args_.a = Put(spec_.a, KDirection::kAlongRows, 1);
    args_.b = Put(spec_.b, KDirection::kAlongColumns, 5);
  }

  const float* Put(TaskOperand& operand, KDirection k, float first) {
    auto memory = std::make_unique<HostMemory>(16);
    auto* const values = reinterpret_cast<float*>(memory->data());
    for (int i = 0; i < 4; ++i) values[i] = first + static_cast<float>(i);
    operand.resident = std::make_shared<StoredMatrix>(2, 2, std::move(memory));
    operand.form = operand.resident->KeepForm(std::make_shared<OperandForm>(
        kernel_.forms, k,
        std::make_unique<HostMemory>(kernel_.forms.PreparedBytes(2, 2, k))));
    return values;
  }

  PreparedOperands Use(BatchForms& forms) {
    const auto used = forms.Use(spec_, args_, nullptr);
    EXPECT_TRUE(used.ok()) << used.status();
    return used.value_or(PreparedOperands{});
  }
  static float First(const void* form) {
    return *static_cast<const float*>(form);
  }

  FormKernel kernel_;
  TaskSpec spec_;
  SgemmArgs args_;
};

TEST_F(BatchFormsTest, TheFirstMakesThemForAll) {
  BatchForms first;
  for (int product = 0; product < 3; ++product) {
    const PreparedOperands operands = Use(first);
    ASSERT_EQ(operands.a, spec_.a.form->data());
    ASSERT_EQ(operands.b, spec_.b.form->data());
    EXPECT_EQ(First(operands.a), -1);
    EXPECT_EQ(First(operands.b), -5);
    EXPECT_EQ(kernel_.forms.prepared, 2);
  }
  BatchForms
      second;  // on another stream: that of the first may still make them
  EXPECT_EQ(Use(second).a, nullptr);
  EXPECT_EQ(Use(second).b, nullptr);
  first.End(/*sound=*/true);
  EXPECT_EQ(Use(second).a, spec_.a.form->data());
  EXPECT_EQ(Use(second).b, spec_.b.form->data());
  second.End(/*sound=*/false);
  EXPECT_TRUE(spec_.a.form->ready()) << "it was not the second that made it";
  EXPECT_EQ(kernel_.forms.prepared, 2);
}

TEST_F(BatchFormsTest, OneFormServesBothSides) {
  spec_.b = spec_.a;
  args_.b = args_.a;
  BatchForms forms;
  const PreparedOperands operands = Use(forms);
  EXPECT_EQ(operands.a, spec_.a.form->data());
  EXPECT_EQ(operands.b, operands.a);
  EXPECT_EQ(kernel_.forms.prepared, 1);
  forms.End(true);
}

TEST_F(BatchFormsTest, AnOperandWithoutAFormHasNone) {
  spec_.a = TaskOperand();
  BatchForms forms;
  const PreparedOperands operands = Use(forms);
  EXPECT_EQ(operands.a, nullptr);
  EXPECT_EQ(operands.b, spec_.b.form->data());
  forms.End(true);
}

TEST_F(BatchFormsTest, NothingIsMadeThatIsNotUsed) {
  args_.shape.k = 1;
  BatchForms forms;
  const PreparedOperands operands = Use(forms);
  EXPECT_EQ(operands.a, nullptr);
  EXPECT_EQ(operands.b, nullptr);
  EXPECT_EQ(kernel_.forms.prepared, 0);
  forms.End(true);
  EXPECT_FALSE(spec_.a.form->ready());
}

TEST_F(BatchFormsTest, WhatFailedIsReadByNobodyAndMadeAgainLater) {
  BatchForms failed;
  kernel_.forms.status = absl::InternalError("launch");
  EXPECT_EQ(failed.Use(spec_, args_, nullptr).status(), kernel_.forms.status);
  kernel_.forms.status = absl::OkStatus();
  BatchForms second;
  EXPECT_EQ(Use(failed).a, nullptr) << "its memory may be half written";
  EXPECT_EQ(Use(second).a, nullptr) << "and still be written to";
  failed.End(/*sound=*/true);
  EXPECT_FALSE(spec_.a.form->ready());
  EXPECT_EQ(Use(second).a, spec_.a.form->data());
  second.End(true);
}

TEST_F(BatchFormsTest, AFaultyDeviceHasMadeNothing) {
  BatchForms forms;
  Use(forms);
  forms.End(/*sound=*/false);
  EXPECT_FALSE(spec_.a.form->ready());
  EXPECT_FALSE(spec_.b.form->ready());
}

}  // namespace
}  // namespace gemmd
