#include "server/observe/device_sampler.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/observe/metrics.h"
#include "tests/support/exposition.h"

namespace gemmd {
namespace {

using testing::Exposition;
using ::testing::HasSubstr;
using testing::ParseExposition;

class DeviceSamplerTest : public ::testing::Test {
 protected:
  Exposition Scrape() { return ParseExposition(metrics_.Render()); }

  const KernelRegistry registry_{std::vector<KernelEntry>()};
  Metrics metrics_{true, registry_};
};

TEST_F(DeviceSamplerTest, RendersWhatTheGpuTellsAndLeavesOutTheRest) {
  auto library = NvmlLibrary::Load(FAKE_NVML);
  ASSERT_TRUE(library.ok()) << library.status();
  const SampledDevice devices[] = {{.index = 2, .uuid = "GPU-fake"},
                                   {.index = 3, .uuid = "GPU-other"}};
  metrics_.AddSource(std::make_shared<DeviceSampler>(*std::move(library),
                                                     devices, absl::Hours(1)));
  const Exposition scrape = Scrape();
  EXPECT_THAT(scrape.problems, ::testing::IsEmpty());
  const auto value = [&](const std::string& series) {
    return scrape.Value("gemmd_device_" + series);
  };
  EXPECT_EQ(value("utilization_ratio{device=\"2\"}"), 0.25);
  EXPECT_EQ(value("memory_bytes{device=\"2\",state=\"used\"}"), 400);
  EXPECT_EQ(value("memory_bytes{device=\"2\",state=\"free\"}"), 600);
  EXPECT_GE(value("power_watts{device=\"2\"}"), 1);
  EXPECT_EQ(value("temperature_celsius{device=\"2\"}"), 60);
  EXPECT_EQ(value("sm_clock_hertz{device=\"2\"}"), 1.98e9);
  EXPECT_TRUE(std::isnan(value("energy_joules_total{device=\"2\"}")));
  EXPECT_TRUE(std::isnan(value("utilization_ratio{device=\"3\"}")));
  EXPECT_EQ(value("xid_errors_total{device=\"2\"}"), 2);
  EXPECT_EQ(value("last_xid{device=\"2\"}"), 79);
  EXPECT_EQ(scrape.Value("gemmd_driver_info{driver_version=\"580.65.06\","
                         "cuda_version=\"12.4\"}"),
            1);
}

// deploy/monitoring checks its panels against that file, since there is no GPU.
TEST_F(DeviceSamplerTest, TheSampleForDashboardsHasEverySeriesOfDevices) {
  std::ifstream file(H200_METRICS);
  const std::string sample{std::istreambuf_iterator<char>(file), {}};
  auto library = NvmlLibrary::Load(FAKE_NVML);
  ASSERT_TRUE(library.ok()) << library.status();
  const SampledDevice device{.uuid = "GPU-fake"};
  metrics_.SetDevice({.index = 0, .peak_flops = 1, .uuid = "GPU-fake"}, true);
  metrics_.AddSource(std::make_shared<DeviceSampler>(
      *std::move(library), std::span(&device, 1), absl::Hours(1)));
  for (const auto& [name, type] : Scrape().types) {
    if (!absl::StartsWith(name, "gemmd_d")) continue;  // of devices and drivers
    EXPECT_THAT(sample, HasSubstr(absl::StrCat("# TYPE ", name, " ", type)));
  }
}

TEST_F(DeviceSamplerTest, WhereThereAreNoEventsThereAreNoXidSeries) {
  setenv("FAKE_NVML_EVENTS", "3", 1);
  auto library = NvmlLibrary::Load(FAKE_NVML);
  unsetenv("FAKE_NVML_EVENTS");
  ASSERT_TRUE(library.ok()) << library.status();
  const SampledDevice device{.uuid = "GPU-fake"};
  metrics_.AddSource(std::make_shared<DeviceSampler>(
      *std::move(library), std::span(&device, 1), absl::Hours(1)));
  const Exposition scrape = Scrape();
  EXPECT_EQ(scrape.Value("gemmd_device_utilization_ratio{device=\"0\"}"), 0.25);
  EXPECT_EQ(scrape.types.count("gemmd_device_xid_errors_total"), 0);
}

TEST_F(DeviceSamplerTest, SamplesByItsTimerAndNotByTheScrape) {
  auto library = NvmlLibrary::Load(FAKE_NVML);
  ASSERT_TRUE(library.ok()) << library.status();
  const SampledDevice device{.uuid = "GPU-fake"};
  const std::string series = "gemmd_device_power_watts{device=\"0\"}";
  {
    auto slow = std::make_shared<DeviceSampler>(
        *std::move(library), std::span(&device, 1), absl::Hours(1));
    metrics_.AddSource(slow);
  }
  const double first = Scrape().Value(series);
  EXPECT_EQ(Scrape().Value(series), first);

  Metrics others(true, registry_);
  others.AddSource(std::make_shared<DeviceSampler>(
      *NvmlLibrary::Load(FAKE_NVML), std::span(&device, 1),
      absl::Milliseconds(1)));
  while (!(ParseExposition(others.Render()).Value(series) > first + 3)) {
    absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST(NvmlLibraryTest, AnAbsentLibraryIsAReason) {
  const auto library = NvmlLibrary::Load("libgemmd-no-such-nvml.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(),
              HasSubstr("libgemmd-no-such-nvml.so.1"));
}

TEST(NvmlLibraryTest, ALibraryOfAnotherKindIsAReason) {
  const auto library = NvmlLibrary::Load("libc.so.6");
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.status().message(), HasSubstr("libc.so.6 has no nvml"));
}

TEST(NvmlLibraryTest, AMissingDriverIsAReason) {
  setenv("FAKE_NVML_INIT", "9", 1);
  const auto library = NvmlLibrary::Load(FAKE_NVML);
  unsetenv("FAKE_NVML_INIT");
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(library.status().message(),
              HasSubstr("nvmlInit_v2: Driver Not Loaded"));
}

}  // namespace
}  // namespace gemmd
