// mma.sync m16n8k8: d (16x8, float32) += a (16x8) b (8x8), 16-bit a and b: half a step of m16n8k16, for a product whose
// inner length is an odd multiple of 8 (PTX ISA 9.7.14.4.6, "Matrix fragments for mma.m16n8k8", sm_80 and later).
//
// Lane 4 g + t holds a[0]: row g, columns 2t, 2t+1; a[1]: row g + 8, the same columns; b: rows 2t, 2t+1, column g; d as
// in m16n8k16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

template <typename T>
__device__ __forceinline__ void mma_sync_m16n8k8(float (&d)[4], const uint32_t (&a)[2], uint32_t b);

template <>
__device__ __forceinline__ void mma_sync_m16n8k8<__half>(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}

template <>
__device__ __forceinline__ void mma_sync_m16n8k8<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}

}  // namespace cuda_llm_ops::ptx
