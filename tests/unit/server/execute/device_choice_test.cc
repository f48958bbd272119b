#include "server/execute/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace gemmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DevicesThatAnswerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<int>> Choose(const std::vector<int>& ordinals,
                                          bool named) {
    return DevicesThatAnswer(
        ordinals, named,
        [this](int ordinal) {
          return ordinal < sick_below_ ? absl::InternalError("ECC")
                                       : absl::OkStatus();
        },
        [this](absl::string_view text) { warning_ = std::string(text); });
  }
  int sick_below_ = 0;
  std::string warning_;
};

TEST_F(DevicesThatAnswerTest, AreAllOfSoundOnes) {
  EXPECT_THAT(*Choose({0, 1, 2}, false), ElementsAre(0, 1, 2));
  EXPECT_THAT(*Choose({2, 1}, true), ElementsAre(2, 1));
  EXPECT_EQ(warning_, "");
}

TEST_F(DevicesThatAnswerTest, LeaveASickOneOutAndSayWhy) {
  sick_below_ = 1;
  EXPECT_THAT(*Choose({0, 1, 2}, false), ElementsAre(1, 2));
  EXPECT_THAT(warning_, HasSubstr("CUDA device 0 cannot be used: ECC"));
}

TEST_F(DevicesThatAnswerTest, MustBeEachThatWasNamed) {
  sick_below_ = 1;
  const auto chosen = Choose({1, 0}, true);
  EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(chosen.status().message()),
              HasSubstr("CUDA device 0 cannot be used: ECC"));
}

TEST_F(DevicesThatAnswerTest, AreAnErrorWithEveryReasonIfThereAreNone) {
  sick_below_ = 2;
  const auto chosen = Choose({0, 1}, false);
  EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(chosen.status().message()),
              testing::AllOf(HasSubstr("device 0"), HasSubstr("device 1")));
}

// Devices 0 and 3 are sick; 4 is of another model than the rest.
std::function<absl::Status(int)> ProbeOfMixedDevices() {
  return OfOneModel(
      [](int ordinal) {
        return ordinal % 3 == 0 ? absl::InternalError("ECC") : absl::OkStatus();
      },
      [](int ordinal) { return ordinal == 4 ? "old" : "new"; });
}

TEST(OfOneModelTest, LeavesOutWhatIsNotLikeTheFirstThatAnswers) {
  std::string warning;
  const auto chosen = DevicesThatAnswer(
      {0, 1, 2, 3, 4, 5}, /*named=*/false, ProbeOfMixedDevices(),
      [&](absl::string_view text) { warning = std::string(text); });
  EXPECT_THAT(*chosen, ElementsAre(1, 2, 5));
  EXPECT_THAT(warning, HasSubstr("device 4 cannot be used: it is of another "
                                 "model (old) than CUDA device 1 (new)"));
}

TEST(OfOneModelTest, GoesByTheFirstNamed) {
  EXPECT_THAT(
      *DevicesThatAnswer({4}, /*named=*/true, ProbeOfMixedDevices(), nullptr),
      ElementsAre(4));
  EXPECT_EQ(
      DevicesThatAnswer({4, 1}, /*named=*/true, ProbeOfMixedDevices(), nullptr)
          .status()
          .code(),
      absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd
