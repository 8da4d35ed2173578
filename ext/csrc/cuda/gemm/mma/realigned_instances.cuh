// The definition of realigned_instances(), for the files that instantiate it.
#pragma once

#include "../portable_instances.cuh"

namespace cuda_llm_ops::cuda {

template <typename T, bool AKMajor, bool BKMajor, typename Config>
KernelInstance realigned_instance() {
  return make_instance<Config>(mma_realigned_kernel<T, Config, AKMajor, BKMajor>);
}

#define CUDA_LLM_OPS_REALIGNED(T, A, B)                                                           \
  {realigned_instance<T, A, B, RealignedLarge>(), realigned_instance<T, A, B, RealignedMedium>(), \
   realigned_instance<T, A, B, RealignedFew>(), realigned_instance<T, A, B, RealignedFewest>()}

template <typename T>
const KernelInstance (&realigned_instances())[2][2][kRealignedConfigs] {
  static const KernelInstance instances[2][2][kRealignedConfigs] = {
      {CUDA_LLM_OPS_REALIGNED(T, false, false), CUDA_LLM_OPS_REALIGNED(T, false, true)},
      {CUDA_LLM_OPS_REALIGNED(T, true, false), CUDA_LLM_OPS_REALIGNED(T, true, true)}};
  return instances;
}

#undef CUDA_LLM_OPS_REALIGNED

}  // namespace cuda_llm_ops::cuda
