// cp.async.mbarrier.arrive: an mbarrier learns of the end of cp.async copies (PTX ISA, "Parallel Synchronization and
// Communication Instructions: cp.async.mbarrier.arrive", sm_80 and later).
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// One arrival at `barrier`, of those its count expects, when all cp.async copies of this thread so far have arrived.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace cuda_llm_ops::ptx
