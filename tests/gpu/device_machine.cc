#include <cuda_runtime.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_buffer.h"
#include "tests/unit/kernels/test_machine.h"

namespace gemmd {
namespace {

// A stream with cuBLAS's handle and workspace, as the server has them; one for
// each thread of a test.
class Session {
 public:
  static absl::StatusOr<Session*> OfThisThread() {
    thread_local absl::StatusOr<std::unique_ptr<Session>> session = Create();
    if (!session.ok()) return session.status();
    return session->get();
  }

  ~Session() {
    cublas_ = {};
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t stream() const { return stream_; }
  LaunchContext context() const {
    return {.stream = stream_, .cublas = cublas_.get()};
  }

 private:
  static absl::StatusOr<std::unique_ptr<Session>> Create() {
    auto session = std::make_unique<Session>();
    absl::Status status = CudaStatus(
        cudaStreamCreateWithFlags(&session->stream_, cudaStreamNonBlocking),
        "cudaStreamCreate");
    const auto library = CublasLibrary::Get();
    if (!status.ok() || !library.ok()) return session;
    auto workspace = AllocateDeviceBuffer(kCublasWorkspaceBytes);
    if (!workspace.ok()) return workspace.status();
    session->workspace_ = *std::move(workspace);
    auto handle = (*library)->CreateHandle(
        session->stream_, session->workspace_.get(), kCublasWorkspaceBytes);
    if (!handle.ok()) return handle.status();
    session->cublas_ = *std::move(handle);
    return session;
  }

  cudaStream_t stream_ = nullptr;
  DeviceBuffer workspace_;
  CublasHandle cublas_;
};

// A copy of an operand on the device, of the exact size, so that
// compute-sanitizer sees a read past it.
class DeviceOperand {
 public:
  static absl::StatusOr<DeviceOperand> Create(const Operand& operand,
                                              cudaStream_t stream) {
    DeviceOperand copy;
    copy.offset_ = operand.offset;
    copy.size_ = operand.memory.size();
    auto memory = AllocateDeviceBuffer(copy.bytes());
    if (!memory.ok()) return memory.status();
    copy.memory_ = *std::move(memory);
    absl::Status status = CudaStatus(
        cudaMemcpyAsync(copy.memory_.get(), operand.memory.data(), copy.bytes(),
                        cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
    if (!status.ok()) return status;
    return copy;
  }

  float* data() const { return static_cast<float*>(memory_.get()) + offset_; }

  absl::StatusOr<Operand> Read(cudaStream_t stream) const {
    Operand operand{std::vector<float>(size_), offset_};
    absl::Status status =
        CudaStatus(cudaMemcpyAsync(operand.memory.data(), memory_.get(),
                                   bytes(), cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync");
    status.Update(
        CudaStatus(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
    if (!status.ok()) return status;
    return operand;
  }

 private:
  size_t bytes() const { return size_ * sizeof(float); }

  DeviceBuffer memory_;
  int64_t offset_ = 0;
  size_t size_ = 0;
};

}  // namespace

const KernelRegistry& TestRegistry() {
  static const KernelRegistry& registry =
      *new KernelRegistry(KernelRegistry::Create());
  return registry;
}

MemorySpace TestSpace() { return MemorySpace::kDevice; }

bool KernelsMustRun() {
  const char* value = std::getenv("GEMMD_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

absl::StatusOr<std::vector<Operand>> RunKernel(
    const SgemmKernel& kernel, std::span<Problem* const> problems,
    const EditArgs& edit) {
  const auto session = Session::OfThisThread();
  if (!session.ok()) return session.status();
  const cudaStream_t stream = (*session)->stream();

  std::vector<DeviceOperand> copies;
  std::vector<SgemmArgs> batch;
  for (Problem* problem : problems) {
    for (const Operand* operand :
         {&problem->a(), &problem->b(), &problem->c()}) {
      auto copy = DeviceOperand::Create(*operand, stream);
      if (!copy.ok()) return copy.status();
      copies.push_back(*std::move(copy));
    }
    SgemmArgs args = problem->args();
    args.a = copies[copies.size() - 3].data();
    args.b = copies[copies.size() - 2].data();
    args.c = copies[copies.size() - 1].data();
    if (edit) edit(args);
    absl::Status status = kernel.Supports(args);
    if (!status.ok()) return status;
    batch.push_back(args);
  }
  LaunchContext context = (*session)->context();
  context.workspace_bytes = kernel.WorkspaceBytes(batch);
  DeviceBuffer workspace;
  if (context.workspace_bytes > 0) {
    auto memory = AllocateDeviceBuffer(context.workspace_bytes);
    if (!memory.ok()) return memory.status();
    workspace = *std::move(memory);
    context.workspace = workspace.get();
  }
  absl::Status status = kernel.Launch(batch, context);
  if (!status.ok()) return status;

  std::vector<Operand> results;
  for (size_t i = 0; i < problems.size(); ++i) {
    auto result = copies[3 * i + 2].Read(stream);
    if (!result.ok()) return result.status();
    results.push_back(*std::move(result));
  }
  return results;
}

}  // namespace gemmd
