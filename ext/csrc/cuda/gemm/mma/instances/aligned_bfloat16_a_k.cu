// mma.sync kernels for aligned __nv_bfloat16 operands, a contiguous along k.
#include "../aligned_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&aligned_instances<__nv_bfloat16, true>())[2][kAlignedConfigs];

}  // namespace cuda_llm_ops::cuda
