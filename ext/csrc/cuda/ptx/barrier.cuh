// bar.sync / bar.arrive: the sixteen named barriers of a block. PTX ISA, "bar, barrier". Barrier 0 is __syncthreads.
// `threads` counts all that take part, waiting and arriving, and is a multiple of 32.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives without waiting.
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Meets as bar_sync does; true in every thread if `value` is in any.
__device__ __forceinline__ bool bar_red_or(uint32_t id, uint32_t threads, bool value) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "bar.red.or.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(value)), "r"(id), "r"(threads)
      : "memory");
  return any != 0;
}

// elect.sync: true in one lane of the converged warp, the same at every call.
__device__ __forceinline__ bool elect_sync() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace cuda_llm_ops::ptx
