// mul.rn.f16x2, mul.rn.bf16x2: two products of 16-bit numbers, subnormal ones included. PTX ISA, "Half Precision Floating Point
// Instructions: mul" (bfloat16: sm_90 and later).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ uint32_t mul_x2(__half, uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ uint32_t mul_x2(__nv_bfloat16, uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace cuda_llm_ops::ptx
