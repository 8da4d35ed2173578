// ld.shared.v4, st.shared.v4 (PTX ISA, "ld", "st"): 16 bytes of shared memory at once, where the program says.
// Addresses as in shared_address.cuh, multiples of 16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ uint4 load_shared_vector(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared_vector(uint32_t address, float4 value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z),
               "f"(value.w)
               : "memory");
}

__device__ __forceinline__ void store_shared_vector(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

}  // namespace cuda_llm_ops::ptx
