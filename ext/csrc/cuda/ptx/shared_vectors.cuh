// ld.shared.v4 (PTX ISA, "ld"): 16 bytes of shared memory at once, read where the program says. Addresses as in
// shared_address.cuh, multiples of 16.
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

}  // namespace cuda_llm_ops::ptx
