// mbarrier: the barrier in shared memory that TMA and the tensor cores' consumers meet at. PTX ISA, "Parallel
// Synchronization and Communication Instructions: mbarrier".
//
// An mbarrier counts down arrivals and bytes of one phase; when both reach zero it turns to the next phase. A waiter
// names the parity of the phase that it waits for: a fresh barrier is in phase 0, so `wait(parity 0)` blocks until
// the first phase completes and `wait(parity 1)` returns at once (what a producer wants from an empty buffer).
//
//   full[stage]   count 1: the producer's arrive_expect_tx; the bytes arrive from TMA
//   empty[stage]  count = number of consumers that arrive; the consumer waits full(phase), the producer empty(phase^1)
#pragma once

#include <cstdint>

#include "shared_address.cuh"

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// After the inits of one thread, before anything else (TMA, other blocks of the cluster) may touch the barriers.
// A block or cluster barrier must follow. Section "membar/fence: fence.mbarrier_init".
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and makes the running phase wait for `bytes` more from TMA: whole boxes, zero-filled parts included.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barrier at the same shared memory offset in block `rank` of the cluster (mapa, then a remote arrive).
// It only announces that a buffer was read, and orders no ordinary writes beyond the block: a release at cluster scope
// would cost a membar.gpu.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// The same at an address of mapa, for those who arrive again and again.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// One try: true when the phase of this parity has completed. It may sleep for a while that the hardware bounds.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// The same at once, without sleeping.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// The same with acquire at cluster scope: for phases that remote blocks' arrivals complete.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// What a wait that lasts too long does; a test may have it say where it was.
#if defined(CUDA_LLM_OPS_BOUNDED_WAITS) && !defined(CUDA_LLM_OPS_GIVE_UP)
#define CUDA_LLM_OPS_GIVE_UP(barrier, parity) __trap()
#endif

// Blocks until the phase completes. With CUDA_LLM_OPS_BOUNDED_WAITS it traps instead of hanging: a protocol error then
// costs a failed launch, not a stuck device.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
  for (uint32_t tries = 0; !mbarrier_try_wait(barrier, parity); ++tries) {
    if (tries > CUDA_LLM_OPS_BOUNDED_WAITS) CUDA_LLM_OPS_GIVE_UP(barrier, parity);
  }
#else
  while (!mbarrier_try_wait(barrier, parity)) {
  }
#endif
}

__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
  for (uint32_t tries = 0; !mbarrier_try_wait_cluster(barrier, parity); ++tries) {
    if (tries > CUDA_LLM_OPS_BOUNDED_WAITS) CUDA_LLM_OPS_GIVE_UP(barrier, parity);
  }
#else
  while (!mbarrier_try_wait_cluster(barrier, parity)) {
  }
#endif
}

}  // namespace cuda_llm_ops::ptx
