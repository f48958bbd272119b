#include "server/observe/store_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "tests/support/exposition.h"
#include "tests/unit/server/store/fake_backend.h"
#include "tests/unit/server/store/fake_forms.h"

namespace gemmd {
namespace {

using testing::Exposition;
using testing::ParseExposition;

TEST(StoreMetricsTest, ShowsWhatTheStoreHoldsAndWhatLeftIt) {
  FakeStoreBackend backend({4096, 4096});
  const auto store = MatrixStore::Create({}, backend, nullptr);
  StoreMetrics metrics(*store);
  const auto scrape = [&] {
    return ParseExposition(
        prometheus::TextSerializer().Serialize(metrics.Collect()));
  };
  const Exposition before = scrape();
  EXPECT_TRUE(before.problems.empty()) << before.problems[0];
  EXPECT_EQ(before.Value("gemmd_matrices"), 0);
  EXPECT_EQ(before.Value("gemmd_matrix_store_bytes"), 0);
  EXPECT_EQ(before.Value("gemmd_matrix_form_bytes"), 0);
  EXPECT_EQ(before.Value("gemmd_matrix_store_capacity_bytes"), 8192);
  for (const char* const reason :
       {"deleted", "expired", "evicted", "replaced", "abandoned"}) {
    EXPECT_EQ(before.Value(std::string("gemmd_matrices_removed_total{reason="
                                       "\"") +
                           reason + "\"}"),
              0);
  }
  const auto output = store->BeginOutput("", "a", 4, 4, {}, 0);
  ASSERT_TRUE(output.ok());
  (*output)->Commit();
  FakeForms forms;
  store->KeepForm("", (*output)->matrix(), 0, forms, KDirection::kAlongRows);
  metrics.OnRemoved(StoreMetrics::Removal::kReplaced);
  const Exposition after = scrape();
  EXPECT_EQ(after.Value("gemmd_matrices"), 1);
  EXPECT_EQ(after.Value("gemmd_matrix_store_bytes"), 64 + 96);
  EXPECT_EQ(after.Value("gemmd_matrix_form_bytes"), 96);
  EXPECT_EQ(after.Value("gemmd_matrices_removed_total{reason=\"replaced\"}"),
            1);
}

}  // namespace
}  // namespace gemmd
