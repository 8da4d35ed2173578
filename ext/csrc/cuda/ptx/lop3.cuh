// lop3: any logical function of three operands in one instruction (PTX ISA, "lop3"). Only one operand can be a constant,
// so the compiler makes two instructions of `a & mask | bits` written out; here the other constant stays in a register.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// a & Mask | Bits.
template <uint32_t Mask, uint32_t Bits>
__device__ __forceinline__ uint32_t masked_or(uint32_t a) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(a), "n"(Mask), "n"(Bits));
  return out;
}

// a & Mask ^ Bits.
template <uint32_t Mask, uint32_t Bits>
__device__ __forceinline__ uint32_t masked_xor(uint32_t a) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(out) : "r"(a), "n"(Mask), "n"(Bits));
  return out;
}

}  // namespace cuda_llm_ops::ptx
