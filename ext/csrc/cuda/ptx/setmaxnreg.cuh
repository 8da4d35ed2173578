// setmaxnreg: moves registers between warpgroups. PTX ISA, "Miscellaneous Instructions: setmaxnreg". All four warps of
// a warpgroup run it; the count is a multiple of 8 in [24, 256]; the warpgroups' sum stays within what the block was
// launched with. The kernel needs __launch_bounds__(threads, 1), with the 1, or ptxas ignores it (C7508).
#pragma once

namespace cuda_llm_ops::ptx {

template <int Registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace cuda_llm_ops::ptx
