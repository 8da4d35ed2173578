#include "../kernel.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

KernelList bfloat16_kernels() { return list<ScalarType::bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
