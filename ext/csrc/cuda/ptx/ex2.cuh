// ex2.approx.ftz: 2^x on the special-function units, one lane in eight a clock; and maxima.
// PTX ISA, "Floating Point Instructions: ex2", "max".
#pragma once

namespace cuda_llm_ops::ptx {

// 2^x, relative error at most 2^-22; 2^-inf = 0, NaN stays NaN, subnormal results become 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger; NaN if either is NaN (fmaxf drops it).
__device__ __forceinline__ float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// The largest of three, of both halves of words as signed 16-bit integers. CUDA math API, "__vimax3_s16x2".
__device__ __forceinline__ unsigned int max3_s16x2(unsigned int a, unsigned int b, unsigned int c) {
  return __vimax3_s16x2(a, b, c);
}

}  // namespace cuda_llm_ops::ptx
