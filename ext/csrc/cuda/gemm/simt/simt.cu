// float32 kernels on the CUDA cores.
#include "../portable_instances.cuh"

namespace cuda_llm_ops::cuda {

const KernelInstance (&simt_instances()) [kSimtConfigs] {
  static const KernelInstance instances[kSimtConfigs] = {make_instance<SimtLarge>(simt_kernel<SimtLarge>),
                                                         make_instance<SimtSmall>(simt_kernel<SimtSmall>)};
  return instances;
}

}  // namespace cuda_llm_ops::cuda
