// mma.sync kernels for 16-bit operands of any alignment.
#include "kernels.cuh"

namespace cuda_llm_ops::cuda {

template <typename T>
const KernelInstance (&general_instances())[kGeneralConfigs] {
  static const KernelInstance instances[kGeneralConfigs] = {
      make_instance<GeneralLarge>(mma_general_kernel<T, GeneralLarge>, GeneralLarge::Tile, GeneralLarge::Tile),
      make_instance<GeneralSmall>(mma_general_kernel<T, GeneralSmall>, GeneralSmall::Tile, GeneralSmall::Tile)};
  return instances;
}

template const KernelInstance (&general_instances<__half>())[kGeneralConfigs];
template const KernelInstance (&general_instances<__nv_bfloat16>())[kGeneralConfigs];

}  // namespace cuda_llm_ops::cuda
