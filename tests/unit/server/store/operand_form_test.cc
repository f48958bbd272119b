// What kernels make of matrices, kept beside them: counted, and the first to
// go.

#include "server/store/operand_form.h"

#include "tests/unit/server/store/fake_forms.h"
#include "tests/unit/server/store/store_fixture.h"

namespace gemmd {
namespace {

constexpr KDirection kRows = KDirection::kAlongRows;
constexpr KDirection kColumns = KDirection::kAlongColumns;

// Matrices of 16 x 16: 1024 bytes each, their forms 1536 along rows.
class OperandFormTest : public StoreFixture {
 protected:
  using Form = std::shared_ptr<OperandForm>;

  std::shared_ptr<StoredMatrix> Matrix(const std::string& id,
                                       const std::string& client = "alice") {
    if (!store_->Find(client, id).ok()) {
      UploadSpec spec = Spec(id, 16, 16);
      spec.client = client;
      EXPECT_TRUE(Upload(spec, RandomBytes(1024)).ok());
    }
    return *store_->Find(client, id);
  }
  Form Keep(const std::string& id, KDirection k = kRows, int device = 0,
            const std::string& client = "alice") {
    return store_->KeepForm(client, Matrix(id, client), device, forms_, k);
  }
  // Without making one.
  bool IsKept(const std::string& id, KDirection k = kRows) {
    return Matrix(id)->form({&forms_, k, 0}) != nullptr;
  }

  FakeForms forms_;
};

TEST_F(OperandFormTest, EachIsMadeOnceAndCounted) {
  const Form rows = Keep("a");
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->bytes(), 1536u);
  EXPECT_FALSE(rows->ready());
  EXPECT_EQ(Keep("a"), rows);
  const Form columns = Keep("a", kColumns);
  EXPECT_NE(columns, rows);
  EXPECT_NE(columns->data(), rows->data());
  EXPECT_EQ(columns->bytes(), 1600u);
  FakeForms other;
  EXPECT_NE(store_->KeepForm("alice", Matrix("a"), 0, other, kRows), rows);
  EXPECT_EQ(store_->form_bytes(), 1536u + 1600 + 1536);
  EXPECT_EQ(store_->used_bytes(), 1024 + store_->form_bytes());
  EXPECT_EQ(store_->List("alice")[0].device_bytes, store_->used_bytes());
}

TEST_F(OperandFormTest, ItGoesBeforeAnyMatrix) {
  Make({}, {4096});
  Matrix("old");
  Keep("new");  // 1024 + 1024 + 1536 of 4096
  Matrix("newest");
  EXPECT_FALSE(IsKept("new"));
  EXPECT_EQ(store_->form_bytes(), 0u);
  EXPECT_EQ(store_->matrices(), 3);
  EXPECT_EQ(observer_.count(Removal::kEvicted), 0);
}

TEST_F(OperandFormTest, TogetherWithMatricesWhereItIsNotEnough) {
  Make({}, {4096});
  Keep("new");
  Matrix("old");
  Matrix("new");
  ASSERT_TRUE(Upload("large", 48, 16).ok());  // all but 1024
  EXPECT_EQ(FindCode("old"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("new"), absl::StatusCode::kOk);
  EXPECT_FALSE(IsKept("new"));
}

TEST_F(OperandFormTest, OneThatAProductHoldsStays) {
  Make({}, {4096});
  const auto matrix = Matrix("used");
  const Form form = Keep("used");
  Matrix("a");
  EXPECT_EQ(Upload("large", 32, 16).status().code(),
            absl::StatusCode::kResourceExhausted)
      << "2560 of 4096 are in use";
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kOk);
  EXPECT_EQ(Keep("used"), form);
}

TEST_F(OperandFormTest, ItDrivesOutOlderFormsAndNoMatrix) {
  Make({}, {4608});
  Keep("a");
  Keep("b");
  EXPECT_FALSE(IsKept("a"));
  EXPECT_TRUE(IsKept("b"));
  Matrix("c");  // full
  Matrix("d");
  ASSERT_EQ(store_->matrices(), 4);
  EXPECT_EQ(Keep("c"), nullptr) << "only a matrix could make room";
  EXPECT_EQ(store_->matrices(), 4);
  EXPECT_EQ(observer_.count(Removal::kEvicted), 0);
}

TEST_F(OperandFormTest, ItIsOnItsClientsAccount) {
  Make({.client_bytes = 2048}, {8192});
  EXPECT_EQ(Keep("b", kRows, 0, "bob"), nullptr) << "1024 + 1536 is too much";
  Make({.client_bytes = 4096}, {8192});
  Keep("b", kRows, 0, "bob");
  Keep("a");
  Matrix("a2");
  Matrix("a3");  // 1536 of 4096 have to go, and bob's stay
  EXPECT_FALSE(IsKept("a"));
  EXPECT_EQ(store_->form_bytes(), 1536u);
  EXPECT_EQ(store_->matrices(), 4);
}

TEST_F(OperandFormTest, WhatIsWrittenHasNoFormOfWhatWasThere) {
  const std::weak_ptr<OperandForm> old = Keep("a");
  auto output = store_->BeginOutput("alice", "a", 16, 16, std::nullopt, 0);
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE(IsKept("a")) << "nothing is written yet";
  (*output)->Commit();
  output->reset();
  EXPECT_TRUE(old.expired());
  EXPECT_FALSE(IsKept("a"));
  EXPECT_EQ(store_->form_bytes(), 0u);
}

TEST_F(OperandFormTest, ItGoesWithItsMatrixAndStaysForItsUser) {
  Form form = Keep("a");
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(store_->used_bytes(), 1536u);
  form.reset();
  EXPECT_EQ(store_->used_bytes(), 0u);
}

TEST_F(OperandFormTest, EachDeviceHasItsOwn) {
  Make({}, {8192, 8192});
  const auto matrix = Matrix("a");
  const int home = matrix->home();
  store_->CopyTo(matrix, 1 - home,
                 [](const absl::Status& status) { EXPECT_TRUE(status.ok()); });
  const Form here = Keep("a", kRows, home);
  const Form there = Keep("a", kRows, 1 - home);
  ASSERT_NE(there, nullptr);
  EXPECT_NE(here, there);
  EXPECT_EQ(here->key().device, home);
  EXPECT_EQ(there->key().device, 1 - home);
  EXPECT_EQ(backend_->device(1 - home).used(), 1024u + 1536);
}

TEST_F(OperandFormTest, OneFillsIt) {
  const Form form = Keep("a");
  EXPECT_TRUE(form->BeginFill());
  EXPECT_FALSE(form->BeginFill());
  EXPECT_FALSE(form->ready());
  form->EndFill(false);
  EXPECT_FALSE(form->ready());
  EXPECT_TRUE(form->BeginFill());
  form->EndFill(true);
  EXPECT_TRUE(form->ready());
  EXPECT_FALSE(form->BeginFill());
}

}  // namespace
}  // namespace gemmd
