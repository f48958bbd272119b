#include "kernels/cuda/cuda_tuning_device.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/sampled_check.h"

namespace gemmd {
namespace {

constexpr size_t kInputBytes = size_t{1} << 30;   // of A and B
constexpr size_t kOutputBytes = size_t{1} << 29;  // of C
constexpr int kMaxSets = 64;
constexpr double kGraphBelowUs = 150;  // else an event around each launch
constexpr double kGraphUs = 400;       // launches in a graph: for about so long
constexpr int kMinGraphLaunches = 8;
constexpr double kTimedUs = 3000;  // at most kMaxRuns, at least kMinRuns
constexpr int kMinRuns = 5;
constexpr int kMaxRuns = 20;

class Event {
 public:
  Event() { cudaEventCreate(&event_); }
  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class DeviceClock final : public CudaTuningDevice {
 public:
  ~DeviceClock() override {
    cublas_ = {};
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Init();

  absl::StatusOr<double> Microseconds(const SgemmKernel& kernel,
                                      const SgemmArgs& like,
                                      int products) override;
  absl::StatusOr<double> MicrosecondsOf(const Launcher& launch,
                                        size_t workspace_bytes,
                                        const SgemmArgs& like, int products,
                                        bool check) override;

 private:
  absl::Status LayOut(const SgemmArgs& like, int products);
  absl::Status CheckFirst(const Launcher& launch, bool check);
  absl::Status LaunchNumber(const Launcher& launch, int i);
  // The times of `runs` calls of `work`, after one to warm up.
  absl::StatusOr<std::vector<double>> Time(
      const std::function<absl::Status(int)>& work, int runs);
  absl::StatusOr<double> TimeGraph(const Launcher& launch, double us);

  cudaStream_t stream_ = nullptr;
  int64_t l2_bytes_ = 0;
  DeviceBuffer inputs_;
  DeviceBuffer outputs_;
  DeviceBuffer worst_;
  DeviceBuffer cublas_workspace_;
  CublasHandle cublas_;
  DeviceBuffer workspace_;
  size_t workspace_bytes_ = 0;
  // The products of launch i: products_ of them from i * products_ on, round
  // and round.
  std::vector<SgemmArgs> sets_;
  int products_ = 1;
};

absl::Status DeviceClock::Init() {
  int device = 0;
  int l2 = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device);
  }
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  absl::Status status = CudaStatus(error, "cudaStreamCreate");
  if (!status.ok()) return status;
  l2_bytes_ = l2;
  for (auto [memory, bytes] :
       {std::pair(&inputs_, kInputBytes), std::pair(&outputs_, kOutputBytes),
        std::pair(&worst_, sizeof(uint32_t)),
        std::pair(&cublas_workspace_, kCublasWorkspaceBytes)}) {
    auto allocated = AllocateDeviceBuffer(bytes);
    if (!allocated.ok()) return allocated.status();
    *memory = *std::move(allocated);
  }
  status = FillUniform(static_cast<float*>(inputs_.get()),
                       kInputBytes / sizeof(float), stream_);
  const auto library = CublasLibrary::Get();
  if (!status.ok() || !library.ok()) return status;
  auto handle = (*library)->CreateHandle(stream_, cublas_workspace_.get(),
                                         kCublasWorkspaceBytes);
  if (!handle.ok()) return handle.status();
  cublas_ = *std::move(handle);
  return absl::OkStatus();
}

// Sets of operands, so many that going round them passes the cache twice.
absl::Status DeviceClock::LayOut(const SgemmArgs& like, int products) {
  constexpr int64_t kAlignment = 64;  // floats
  const auto padded = [](int64_t rows, int64_t ld) {
    return (rows * ld + kAlignment - 1) / kAlignment * kAlignment;
  };
  const GemmShape& s = like.shape;
  const int64_t a = padded(StoredRowsA(s), like.lda);
  const int64_t b = padded(StoredRowsB(s), like.ldb);
  const int64_t c = padded(s.m, like.ldc);
  const int64_t fit = std::min(int64_t{kInputBytes} / 4 / (a + b),
                               int64_t{kOutputBytes} / 4 / c);
  if (fit < products) {
    return absl::ResourceExhaustedError(
        absl::StrCat("operands of ", s.m, " x ", s.n, " x ", s.k,
                     " are larger than what is set aside for tuning"));
  }
  const int64_t wanted = 2 * l2_bytes_ / ((a + b + c) * 4) + 1;
  const int64_t launches =
      std::min({fit / products, (wanted + products - 1) / products,
                int64_t{kMaxSets} / products + 1});
  const int64_t sets = launches * products;
  products_ = products;
  sets_.assign(sets, like);
  for (int64_t i = 0; i < sets; ++i) {
    sets_[i].a = static_cast<float*>(inputs_.get()) + i * (a + b);
    sets_[i].b = sets_[i].a + a;
    sets_[i].c = static_cast<float*>(outputs_.get()) + i * c;
  }
  return absl::OkStatus();
}

absl::Status DeviceClock::LaunchNumber(const Launcher& launch, int i) {
  const size_t first = i * size_t(products_) % sets_.size();
  return launch(std::span(sets_).subspan(first, products_),
                {.stream = stream_,
                 .cublas = cublas_.get(),
                 .workspace = workspace_.get(),
                 .workspace_bytes = workspace_bytes_});
}

absl::Status DeviceClock::CheckFirst(const Launcher& launch, bool check) {
  const SgemmArgs& p = sets_[0];
  absl::Status status = CudaStatus(
      cudaMemsetAsync(p.c, 0xff, p.shape.m * p.ldc * sizeof(float), stream_),
      "cudaMemsetAsync");
  status.Update(LaunchNumber(launch, 0));
  if (!status.ok()) return status;
  auto* const worst = static_cast<uint32_t*>(worst_.get());
  float share = 0;
  status = CheckSamples(p, worst, stream_);
  status.Update(CudaStatus(cudaMemcpyAsync(&share, worst, sizeof(share),
                                           cudaMemcpyDeviceToHost, stream_),
                           "cudaMemcpyAsync"));
  status.Update(
      CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
  if (!status.ok() || share <= 1 || (!check && std::isfinite(share))) {
    return status;
  }
  return absl::DataLossError(
      absl::StrCat("the result is wrong: the worst error is ", share,
                   " times the bound of its precision"));
}

absl::StatusOr<std::vector<double>> DeviceClock::Time(
    const std::function<absl::Status(int)>& work, int runs) {
  std::vector<Event> events(runs + 1);
  absl::Status status = work(0);
  for (int i = 0; i <= runs; ++i) {
    if (i > 0) status.Update(work(i));
    if (!status.ok()) return status;
    status = CudaStatus(cudaEventRecord(events[i].get(), stream_),
                        "cudaEventRecord");
  }
  status.Update(
      CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
  if (!status.ok()) return status;
  std::vector<double> us(runs);
  for (int i = 0; i < runs; ++i) {
    float ms = 0;
    status = CudaStatus(
        cudaEventElapsedTime(&ms, events[i].get(), events[i + 1].get()),
        "cudaEventElapsedTime");
    if (!status.ok()) return status;
    us[i] = 1000.0 * ms;
  }
  return us;
}

double Median(std::vector<double> us) {
  std::ranges::nth_element(us, us.begin() + us.size() / 2);
  return us[us.size() / 2];
}

int Runs(double us) {
  return std::clamp(static_cast<int>(kTimedUs / us), kMinRuns, kMaxRuns);
}

// Replays of a graph of many launches: the host's pace does not count.
absl::StatusOr<double> DeviceClock::TimeGraph(const Launcher& launch,
                                              double us) {
  const int launches =
      std::max({static_cast<int>(sets_.size()) / products_, kMinGraphLaunches,
                std::min(static_cast<int>(kGraphUs / us), kMaxSets)});
  cudaGraph_t graph = nullptr;
  absl::Status status = CudaStatus(
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
      "cudaStreamBeginCapture");
  if (!status.ok()) return status;
  for (int i = 0; i < launches && status.ok(); ++i) {
    status = LaunchNumber(launch, i);
  }
  status.Update(CudaStatus(cudaStreamEndCapture(stream_, &graph),
                           "cudaStreamEndCapture"));
  if (!status.ok()) return status;
  cudaGraphExec_t replay = nullptr;
  status = CudaStatus(cudaGraphInstantiate(&replay, graph, 0),
                      "cudaGraphInstantiate");
  cudaGraphDestroy(graph);
  if (!status.ok()) return status;
  const auto times = Time(
      [&](int) {
        return CudaStatus(cudaGraphLaunch(replay, stream_), "cudaGraphLaunch");
      },
      Runs(us * launches));
  cudaGraphExecDestroy(replay);
  if (!times.ok()) return times.status();
  return Median(*times) / launches;
}

absl::StatusOr<double> DeviceClock::MicrosecondsOf(const Launcher& launch,
                                                   size_t workspace_bytes,
                                                   const SgemmArgs& like,
                                                   int products, bool check) {
  absl::Status status = LayOut(like, products);
  if (!status.ok()) return status;
  if (workspace_bytes > workspace_bytes_) {
    workspace_.reset();
    workspace_bytes_ = 0;
    auto memory = AllocateDeviceBuffer(workspace_bytes);
    if (!memory.ok()) return memory.status();
    workspace_ = *std::move(memory);
    workspace_bytes_ = workspace_bytes;
  }
  status = CheckFirst(launch, check);
  if (!status.ok()) return status;
  const auto once = [&](int i) { return LaunchNumber(launch, i); };
  const auto estimate = Time(once, 1);
  if (!estimate.ok()) return estimate.status();
  if ((*estimate)[0] < kGraphBelowUs) {
    const auto us = TimeGraph(launch, (*estimate)[0]);
    if (!us.ok()) return us.status();
    return *us / products;
  }
  const auto times = Time(once, Runs((*estimate)[0]));
  if (!times.ok()) return times.status();
  return Median(*times) / products;
}

absl::StatusOr<double> DeviceClock::Microseconds(const SgemmKernel& kernel,
                                                 const SgemmArgs& like,
                                                 int products) {
  absl::Status status = LayOut(like, products);
  if (!status.ok()) return status;
  for (const SgemmArgs& args : sets_) {
    status = kernel.Supports(args);
    if (!status.ok()) return status;
  }
  return MicrosecondsOf(
      [&](std::span<const SgemmArgs> problems, const LaunchContext& context) {
        return kernel.Launch(problems, context);
      },
      kernel.WorkspaceBytes(std::span(sets_).first(products)), like, products,
      kernel.info().precision != Precision::kTf32);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaTuningDevice>> CudaTuningDevice::Create() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        "there is no CUDA device to measure on");
  }
  auto device = std::make_unique<DeviceClock>();
  absl::Status status = device->Init();
  if (!status.ok()) return status;
  return device;
}

absl::StatusOr<std::unique_ptr<TuningDevice>> CreateCudaTuningDevice() {
  return CudaTuningDevice::Create();
}

}  // namespace gemmd
