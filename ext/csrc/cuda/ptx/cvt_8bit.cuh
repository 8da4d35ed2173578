// cvt: two 8-bit floats to a packed pair of float16, exactly (PTX ISA, "cvt", sm_89 and later).
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// Of the lower half of `four`, four e4m3 numbers, and of its upper half. A pair's first number is in the lower bits.
__device__ __forceinline__ void cvt_rn_f16x2_e4m3(uint32_t& lower, uint32_t& upper, uint32_t four) {
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(lower), "=r"(upper)
      : "r"(four));
}

}  // namespace cuda_llm_ops::ptx
