// mma.sync kernels for __nv_bfloat16 operands of any alignment.
#include "../realigned_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&realigned_instances<__nv_bfloat16>())[2][2][kRealignedConfigs];

}  // namespace cuda_llm_ops::cuda
