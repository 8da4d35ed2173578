// mma.sync kernels for __half operands of any alignment.
#include "../realigned_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&realigned_instances<__half>())[2][2][kRealignedConfigs];

}  // namespace cuda_llm_ops::cuda
