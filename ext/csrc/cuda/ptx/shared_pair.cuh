// ld.shared (PTX ISA, "ld"): two float32 of shared memory at once. The address is a multiple of 8, as in
// shared_address.cuh. Without a memory clobber: the caller orders the load by a barrier.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}

}  // namespace cuda_llm_ops::ptx
