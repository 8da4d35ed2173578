// ldmatrix: 8x8 matrices of 16-bit elements from shared memory into the register layout of mma.sync (PTX ISA 9.7.14.5,
// "Warp-level matrix load instruction: ldmatrix", .m8n8.b16, sm_75 and later).
//
// The whole warp takes part. Lane 8 j + r holds the address of row r (16 bytes, 16-byte aligned) of matrix j; x2 reads
// the addresses of lanes 0-15, x1 of lanes 0-7, but every lane's address must be valid. After it lane 4 g + t holds in
// registers[j] the elements (g, 2 t) and (g, 2 t + 1) of matrix j; with _trans, of the transposed matrix j.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&registers)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&registers)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&registers)[2], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t& first, uint32_t& second, uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&registers)[2], uint32_t shared) {
  ldmatrix_x2_trans(registers[0], registers[1], shared);
}

__device__ __forceinline__ void ldmatrix_x1_trans(uint32_t& matrix, uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(matrix) : "r"(shared) : "memory");
}

}  // namespace cuda_llm_ops::ptx
