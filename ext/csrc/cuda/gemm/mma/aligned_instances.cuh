// The definition of aligned_instances(), for the files that instantiate it.
#pragma once

#include "../portable_instances.cuh"

namespace cuda_llm_ops::cuda {

template <typename T, typename Config, bool AKMajor, bool BKMajor>
KernelInstance aligned_instance() {
  return make_instance<Config>(mma_aligned_kernel<T, Config, AKMajor, BKMajor>);
}

#define CUDA_LLM_OPS_ALIGNED_ROW(T, A, B)                                         \
  {aligned_instance<T, MmaLarge, A, B>(), aligned_instance<T, MmaSquare, A, B>(), \
   aligned_instance<T, MmaWide, A, B>(),  aligned_instance<T, MmaMedium, A, B>(), \
   aligned_instance<T, MmaSmall, A, B>(), aligned_instance<T, MmaSkinny, A, B>()}

template <typename T, bool AKMajor>
const KernelInstance (&aligned_instances())[2][kAlignedConfigs] {
  static const KernelInstance instances[2][kAlignedConfigs] = {CUDA_LLM_OPS_ALIGNED_ROW(T, AKMajor, false),
                                                               CUDA_LLM_OPS_ALIGNED_ROW(T, AKMajor, true)};
  return instances;
}

#undef CUDA_LLM_OPS_ALIGNED_ROW

}  // namespace cuda_llm_ops::cuda
