#include "proto/error_details.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/gpu/backend/cuda_fixture.h"
#include "tests/gpu/backend/wild_write.h"

namespace gemmd {
namespace {

class CudaFaultTest : public CudaBackendFixture {};

void ExpectDeviceFault(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.ErrorInfo")
                  .has_value());
  EXPECT_THAT(std::string(status.message()),
              ::testing::Not(::testing::HasSubstr("cuda")));
}

// An error that the context does not survive: what ran fails, what had not
// begun may be tried elsewhere, every report says so, and nothing hangs.
TEST_F(CudaFaultTest, ALostDeviceFailsWhatRanAndSendsTheRestAway) {
  ScriptedDeviceKernel wild(/*fused=*/true);
  wild.on_launch = [](std::span<const SgemmArgs>,
                      const LaunchContext& context) {
    WildWrite(context.stream);
    return absl::OkStatus();
  };
  std::vector<Ending> endings(2);
  Batch batch;
  batch.kernel = &wild;
  batch.fused = true;
  for (Ending& ending : endings) batch.tasks.push_back(MakeTask(wild, ending));
  const BatchReport report = Run(std::move(batch));
  EXPECT_EQ(report.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(report.status.message()),
              ::testing::HasSubstr("cuda"))
      << "the log needs the call's name";
  EXPECT_EQ(report.tasks, 2);
  for (Ending& ending : endings) {
    ASSERT_EQ(ending.times, 1);
    ExpectDeviceFault(ending.result.status);
  }
  EXPECT_EQ(staging().used_bytes(), 0u);

  const SgemmKernel& sound = Kernel("naive");
  Ending later;
  Batch next;
  next.kernel = &sound;
  next.tasks.push_back(MakeTask(sound, later));
  EXPECT_EQ(Run(std::move(next)).status, report.status);
  EXPECT_EQ(later.times, 1);
  EXPECT_EQ(later.result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelay(later.result.status).has_value());
}

}  // namespace
}  // namespace gemmd
