// mma.sync kernels for __nv_bfloat16 operands of any alignment.
#include "shifted_instances.cuh"

namespace cuda_llm_ops::cuda {

template const KernelInstance (&shifted_instances<__nv_bfloat16>())[2][2][kShiftedConfigs];

}  // namespace cuda_llm_ops::cuda
