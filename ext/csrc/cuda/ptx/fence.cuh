// Fences between the generic proxy (ordinary loads and stores, stmatrix) and the async proxy (TMA, wgmma's reads of
// shared memory). PTX ISA, "membar/fence: fence.proxy".
#pragma once

namespace cuda_llm_ops::ptx {

// Each thread that wrote shared memory which TMA or wgmma reads next runs this, then the threads meet at a barrier,
// then the TMA store or wgmma is issued. Also before TMA overwrites what ordinary loads have read.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory that TMA reads in the kernel that wrote it.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace cuda_llm_ops::ptx
