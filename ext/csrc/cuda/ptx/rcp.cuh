// rcp.approx.ftz: a reciprocal on the special-function units, within one unit in the last place; 0 beyond 2^126.
// PTX ISA, "Floating Point Instructions: rcp".
#pragma once

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace cuda_llm_ops::ptx
