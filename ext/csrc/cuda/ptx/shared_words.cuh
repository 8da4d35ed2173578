// ld.shared, st.shared (PTX ISA, "ld", "st"): words of shared memory that the compiler keeps in no register. For
// kernels whose accumulators leave few registers. Addresses as in shared_address.cuh.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ int load_shared(uint32_t address) {
  int value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t load_shared_64(uint32_t address) {
  uint64_t value;
  asm volatile("ld.shared.b64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint16_t load_shared_16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load_shared_8(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_shared(uint32_t address, int value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint64_t value) {
  asm volatile("st.shared.b64 [%0], %1;" ::"r"(address), "l"(value) : "memory");
}

// 16 bytes of zeros.
__device__ __forceinline__ void store_shared_zeros(uint32_t address) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

}  // namespace cuda_llm_ops::ptx
