// threadIdx.x read afresh (PTX ISA, "Special Registers: %tid"). The compiler merges reads of threadIdx.x and keeps what
// is computed from it in registers from the first use to the last; what is computed from this is computed where it is
// needed. For kernels whose accumulators leave few registers.
#pragma once

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ int fresh_tid_x() {
  int value;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(value));
  return value;
}

// The same value; the compiler cannot know that it is.
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace cuda_llm_ops::ptx
