// atom: read-modify-write of global memory that also orders memory around it. PTX ISA, "atom".
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// The old value. Whoever reads a later value sees what was written before this one, device-wide.
__device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* global, uint32_t value) {
  uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(global), "r"(value) : "memory");
  return old;
}

}  // namespace cuda_llm_ops::ptx
