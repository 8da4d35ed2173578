// cp.async of 16 bytes with the ignore-src operand: where `ignore` holds nothing is read and the destination becomes
// zeros. It costs a predicate, where a number of source bytes costs arithmetic on the address (PTX ISA 9.7.9.25,
// "cp.async", from PTX ISA 7.5 on; otherwise as in cp_async.cuh).
#pragma once

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void cp_async_cg_16_unless(bool ignore, unsigned int shared, const void* global) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p;\n"
      "}\n"
      :
      : "r"(shared), "l"(global), "r"(static_cast<int>(ignore))
      : "memory");
}

}  // namespace cuda_llm_ops::ptx
