// mma.sync kernels for __half operands of any alignment.
#include "shifted_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&shifted_instances<__half>())[2][2][kShiftedConfigs];

}  // namespace cuda_llm_ops::cuda
