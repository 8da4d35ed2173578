#include "sm90_instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList split_float16() { return split_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
