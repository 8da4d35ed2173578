// cvt: two float32 to a packed pair of 16-bit numbers, round to nearest even. PTX ISA, "cvt". Volatile: where a pair is
// made in a loop over registers, the compiler would otherwise make all pairs before the loop and spill.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cuda_llm_ops::ptx {

// T is __half or __nv_bfloat16; `low` is the element at the lower address.
template <typename T>
__device__ __forceinline__ uint32_t cvt_rn_x2(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

}  // namespace cuda_llm_ops::ptx
