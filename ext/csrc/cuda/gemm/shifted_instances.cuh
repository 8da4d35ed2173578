// The definition of shifted_instances(), for the files that instantiate it.
#pragma once

#include "kernels.cuh"

namespace cuda_llm_ops::cuda {

template <typename T, bool AKMajor, bool BKMajor, typename Config>
KernelInstance shifted_instance() {
  return make_instance<Config>(mma_shifted_kernel<T, Config, AKMajor, BKMajor>);
}

#define CUDA_LLM_OPS_SHIFTED(T, A, B) \
  { shifted_instance<T, A, B, ShiftedLarge>(), shifted_instance<T, A, B, ShiftedMedium>(), \
    shifted_instance<T, A, B, ShiftedFew>(), shifted_instance<T, A, B, ShiftedFewest>() }

template <typename T>
const KernelInstance (&shifted_instances())[2][2][kShiftedConfigs] {
  static const KernelInstance instances[2][2][kShiftedConfigs] = {
      {CUDA_LLM_OPS_SHIFTED(T, false, false), CUDA_LLM_OPS_SHIFTED(T, false, true)},
      {CUDA_LLM_OPS_SHIFTED(T, true, false), CUDA_LLM_OPS_SHIFTED(T, true, true)}};
  return instances;
}

#undef CUDA_LLM_OPS_SHIFTED

}  // namespace cuda_llm_ops::cuda
