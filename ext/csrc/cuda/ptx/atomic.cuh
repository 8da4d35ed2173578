// atom, red: read-modify-write of memory; of global memory such that also orders memory around it. PTX ISA, "atom",
// "red".
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// The old value. Whoever reads a later value sees what was written before this one, device-wide.
__device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* global, uint32_t value) {
  uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(global), "r"(value) : "memory");
  return old;
}

// Adds without returning: release as above. PTX ISA, "red".
__device__ __forceinline__ void red_release_add(uint32_t* global, uint32_t value) {
  asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

// Who reads what such an addition made sees what was written before it.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* global) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

// Of a word of shared memory: a hint from one warp to another, which orders nothing. Addresses as in
// shared_address.cuh.
__device__ __forceinline__ uint32_t atomic_exchange_shared(uint32_t address, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.cta.shared.exch.b32 %0, [%1], %2;" : "=r"(old) : "r"(address), "r"(value) : "memory");
  return old;
}
__device__ __forceinline__ uint32_t atomic_load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], 0;" : "=r"(value) : "r"(address) : "memory");
  return value;
}

}  // namespace cuda_llm_ops::ptx
