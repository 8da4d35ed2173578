// mma.sync m16n8k16: d (16x8, float32) += a (16x16) b (16x8), 16-bit a and b, by one warp (PTX ISA 9.7.14.4.8, "Matrix
// fragments for mma.m16n8k16 with floating point type", sm_80 and later).
//
// Lane 4 g + t (g = 0..7, t = 0..3) holds, two 16-bit elements a register, the one with the smaller index in the low
// half:
//   a[0]: rows g,     columns 2t, 2t+1      a[2]: rows g,     columns 2t+8, 2t+9
//   a[1]: rows g + 8, columns 2t, 2t+1      a[3]: rows g + 8, columns 2t+8, 2t+9
//   b[0]: rows 2t, 2t+1, column g           b[1]: rows 2t+8, 2t+9, column g
//   d[0], d[1]: row g, columns 2t, 2t+1     d[2], d[3]: row g + 8, columns 2t, 2t+1
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void mma_sync_m16n8k16_f32_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_sync_m16n8k16_f32_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same by element type, for kernels that are templates over it.
template <typename T>
__device__ __forceinline__ void mma_sync_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma_sync_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                          uint32_t b1) {
  mma_sync_m16n8k16_f32_f16(d, a, b0, b1);
}

template <>
__device__ __forceinline__ void mma_sync_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                                 uint32_t b1) {
  mma_sync_m16n8k16_f32_bf16(d, a, b0, b1);
}

}  // namespace cuda_llm_ops::ptx
