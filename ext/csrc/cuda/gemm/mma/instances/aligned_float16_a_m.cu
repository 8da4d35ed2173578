// mma.sync kernels for aligned __half operands, a contiguous along m.
#include "../aligned_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&aligned_instances<__half, false>())[2][kAlignedConfigs];

}  // namespace cuda_llm_ops::cuda
