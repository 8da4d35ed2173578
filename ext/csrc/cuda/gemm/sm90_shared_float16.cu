#include "sm90_instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList shared_float16() { return shared_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
