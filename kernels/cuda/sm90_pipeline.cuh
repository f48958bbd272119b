// The Hopper instructions that the sm90 kernels are made of, one thin function
// each: shared-memory barriers, bulk tensor loads, register budgets.
//
// PTX ISA 8.x, sections "mbarrier", "cp.async.bulk.tensor", "setmaxnreg".

#pragma once

#include <cuda.h>

#include <cstdint>

// Defined where device code is compiled for sm_90a, whose instructions no other
// architecture has, the plain sm_90 included. Elsewhere kernels are left empty,
// and never launched (HasSm90aCode in sm90_ffma.cu).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GEMMD_SM90A
#endif

namespace gemmd::sm90 {

// The address of shared memory as the instructions below take it.
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ----- barriers in shared memory -----

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

// Arrives, and lets the phase end only after `bytes` more have been copied in.
__device__ __forceinline__ void ArriveExpectingBytes(uint32_t barrier,
                                                     uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Returns when the barrier's phase of parity `parity` has ended.
__device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Where a thread stands in a ring of stages, and the parity its next wait uses.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  template <int kStride = 1>
  __device__ __forceinline__ void Advance() {
    static_assert(kStages % kStride == 0, "or strides would drift apart");
    stage += kStride;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

// ----- bulk tensor copies -----

// Starts the copy of the box at (`inner`, `outer`) of `map` to `shared`; its
// bytes count towards `barrier`. Elements outside the tensor arrive as zeros.
__device__ __forceinline__ void LoadBox(uint32_t shared, const CUtensorMap& map,
                                        int inner, int outer,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(&map), "r"(inner), "r"(outer), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ----- flags between blocks, in global memory -----

// Makes what the block wrote before (and a barrier and __threadfence() put
// before this) visible to whoever awaits the flag.
__device__ __forceinline__ void SetFlag(uint64_t* flag, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(value)
               : "memory");
}

// Returns when the flag has `value`, and leaves 0 there.
__device__ __forceinline__ void AwaitAndClearFlag(uint64_t* flag,
                                                  uint64_t value) {
  uint64_t found;
  do {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                 : "=l"(found)
                 : "l"(flag)
                 : "memory");
  } while (found != value);
  *flag = 0;
}

// ----- launches that overlap (programmatic dependent launch) -----

// Returns when every launch before this one on the stream has ended and what it
// wrote can be read. A kernel launched to overlap touches no operand, C or
// workspace before it.
__device__ __forceinline__ void AwaitEarlierLaunches() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next launch of the stream, if it was made to overlap, start on what
// is free of the chip; it waits as above for this one.
__device__ __forceinline__ void AllowNextLaunch() {
  asm volatile("griddepcontrol.launch_dependents;");
}

// ----- warps -----

// Gives registers of this warpgroup back, or asks for more of them.
template <int kRegisters>
__device__ __forceinline__ void ReleaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void ClaimRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier among `threads` threads of the block; `id` is 1 to 15.
__device__ __forceinline__ void NamedBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace gemmd::sm90
