// movmatrix: transposes an 8x8 matrix of 16-bit elements among the registers of a warp (PTX ISA, "Warp-level matrix
// transpose instruction: movmatrix", sm_75 and later).
//
// The whole warp takes part. Lane 4 g + t gives the elements (g, 2 t) and (g, 2 t + 1), and gets (2 t, g) and
// (2 t + 1, g).
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t value) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(value));
  return transposed;
}

}  // namespace cuda_llm_ops::ptx
