#include "../kernel.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

KernelList float16_kernels() { return list<ScalarType::float16>(); }

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
