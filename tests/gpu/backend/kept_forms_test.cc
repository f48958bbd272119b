// Forms of resident matrices on a real device, kept by a store: the same bits
// as without them, and never those of a matrix that was there before.

#include <cuda_runtime.h>

#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/matrix_store.h"
#include "tests/gpu/backend/cuda_fixture.h"
#include "tests/unit/server/execute/operand_mixtures.h"

namespace gemmd {
namespace {

using Values = std::vector<float>;

// Products of sm90_bf16x6 whose operands and answers are in a store. k is large
// enough for forms to be used.
class KeptFormsTest : public CudaBackendFixture {
 protected:
  void SetUp() override {
    Make({.resident_bytes = size_t{256} << 20});
    if (backend_ == nullptr) return;
    const auto kernel = registry_.Find("sm90_bf16x6");
    if (!kernel.ok()) GTEST_SKIP() << kernel.status();
    kernel_ = *kernel;
    store_ = MatrixStore::Create({}, *backend_, nullptr);
  }
  void TearDown() override { store_.reset(); }

  // As a product that writes to `id` publishes its answer.
  void Put(const std::string& id, const TestMatrix& x) {
    auto output =
        *store_->BeginOutput("alice", id, x.rows, x.cols, std::nullopt, 0);
    StagingBuffer from = *staging().Allocate(x.bytes());
    std::memcpy(from.data(), x.values.data(), x.bytes());
    std::latch done(1);
    device().CopyIn(const_cast<ResidentMemory&>(*output->matrix()->memory(0)),
                    0, std::move(from),
                    [&](const absl::Status& status, StagingBuffer) {
                      EXPECT_TRUE(status.ok()) << status;
                      done.count_down();
                    });
    done.wait();
    output->Commit();
  }

  // A product of matrices of the store's, with forms or without, as
  // SgemmProduct makes it.
  TaskSpec Spec(const GemmShape& shape, const std::string& a,
                const std::string& b, bool keep) {
    TaskSpec spec;
    spec.shape = shape;
    spec.kernel = kernel_;
    spec.device = 0;
    spec.arrival = MonotonicClock::now();
    spec.a.resident = *store_->Find("alice", a);
    spec.b.resident = *store_->Find("alice", b);
    spec.output = *staging().Allocate(shape.m * shape.n * sizeof(float));
    if (keep) {
      const PreparedSgemm& prepared = *kernel_->prepared();
      EXPECT_TRUE(prepared.UsesForms({.shape = shape}));
      spec.a.form = store_->KeepForm("alice", spec.a.resident, 0, prepared,
                                     KDirectionOfA(shape));
      spec.b.form = store_->KeepForm("alice", spec.b.resident, 0, prepared,
                                     KDirectionOfB(shape));
      EXPECT_NE(spec.a.form, nullptr);
      EXPECT_NE(spec.b.form, nullptr);
    }
    return spec;
  }

  static Values ValuesOf(const Ending& ending) {
    EXPECT_TRUE(ending.result.status.ok()) << ending.result.status;
    const StagingBuffer& output = ending.result.output;
    return {output.floats(), output.floats() + output.size() / 4};
  }
  Values Multiply(TaskSpec spec) {
    Ending ending;
    Batch batch;
    batch.kernel = kernel_;
    batch.tasks.push_back(
        std::make_shared<Task>(std::move(spec), ending.For()));
    const BatchReport report = Run(std::move(batch));
    EXPECT_TRUE(report.status.ok()) << report.status;
    return ValuesOf(ending);
  }
  static bool SameBits(const Values& x, const Values& y) {
    return x.size() == y.size() &&
           std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  }

  const SgemmKernel* kernel_ = nullptr;
  std::unique_ptr<MatrixStore> store_;
};

TEST_F(KeptFormsTest, GiveTheBitsOfAProductWithoutThem) {
  for (GemmShape shape : {GemmShape{130, 70, 1030}, GemmShape{1, 257, 1024},
                          GemmShape{64, 64, 1155}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      shape.transpose_a = transposes & 1;
      shape.transpose_b = transposes & 2;
      const TestProduct product(shape, 1, 0, random_);
      // A name keeps its shape.
      const std::string a = absl::StrCat("a", shape.m, "-", transposes);
      const std::string b = absl::StrCat("b", shape.m, "-", transposes);
      Put(a, product.a);
      Put(b, product.b);
      const Values plain = Multiply(Spec(shape, a, b, false));
      ASSERT_LE(product.Error(plain), 1);
      for (int use = 0; use < 3; ++use) {  // made, then used
        TaskSpec spec = Spec(shape, a, b, true);
        const auto form_a = spec.a.form;
        const auto form_b = spec.b.form;
        EXPECT_EQ(form_a->ready(), use > 0);
        ASSERT_TRUE(SameBits(Multiply(std::move(spec)), plain))
            << "use " << use;
        EXPECT_TRUE(form_a->ready() && form_b->ready());
      }
    }
  }
  EXPECT_GT(store_->form_bytes(), 0u);
}

TEST_F(KeptFormsTest, AreReallyUsed) {
  const GemmShape shape{64, 64, 1024};
  const TestProduct product(shape, 1, 0, random_);
  Put("a", product.a);
  Put("b", product.b);
  const Values plain = Multiply(Spec(shape, "a", "b", true));
  TaskSpec spec = Spec(shape, "a", "b", true);
  ASSERT_EQ(cudaMemset(spec.b.form->data(), 0, spec.b.form->bytes()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(Multiply(std::move(spec)), Values(plain.size(), 0.0f));
}

TEST_F(KeptFormsTest, AMatrixThatIsWrittenHasNoneOfTheOldNumbers) {
  const GemmShape shape{96, 80, 1100};
  const TestProduct first(shape, 1, 0, random_);
  Put("a", first.a);
  Put("b", first.b);
  EXPECT_LE(first.Error(Multiply(Spec(shape, "a", "b", true))), 1);
  EXPECT_LE(first.Error(Multiply(Spec(shape, "a", "b", true))), 1);
  const TestProduct second(shape, 1, 0, random_);
  Put("b", second.b);  // B alone: A keeps its form
  const Values mixed = Multiply(Spec(shape, "a", "b", true));
  EXPECT_GT(first.Error(mixed), 1);
  EXPECT_TRUE(SameBits(mixed, Multiply(Spec(shape, "a", "b", false))));
  Put("a", second.a);
  EXPECT_LE(second.Error(Multiply(Spec(shape, "a", "b", true))), 1);
}

TEST_F(KeptFormsTest, ManyStreamsUseWhatOneOfThemMakes) {
  const GemmShape shape{256, 192, 2048};
  const TestProduct product(shape, 1, 0, random_);
  for (int round = 0; round < 20; ++round) {
    Put("a", product.a);
    Put("b", product.b);
    const Values plain = Multiply(Spec(shape, "a", "b", false));
    const int streams = device().info().streams;
    std::vector<Ending> endings(2 * streams);  // two products a batch
    std::latch ran(streams);
    for (int i = 0; i < streams; ++i) {
      Batch batch;
      batch.kernel = kernel_;
      for (int j = 0; j < 2; ++j) {
        batch.tasks.push_back(std::make_shared<Task>(
            Spec(shape, "a", "b", true), endings[2 * i + j].For()));
      }
      device().Execute(std::move(batch), [&](const BatchReport& report) {
        EXPECT_TRUE(report.status.ok()) << report.status;
        ran.count_down();
      });
    }
    ran.wait();
    for (const Ending& ending : endings) {
      ASSERT_TRUE(SameBits(ValuesOf(ending), plain)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace gemmd
