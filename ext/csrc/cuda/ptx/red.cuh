// red: additions to global memory that return nothing, four float32 at once. PTX ISA, "red", the vector form (sm_90).
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// The address is a multiple of 16. Each of the four is added by itself, in no order against other threads' additions.
__device__ __forceinline__ void red_add_v4(float* global, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

}  // namespace cuda_llm_ops::ptx
