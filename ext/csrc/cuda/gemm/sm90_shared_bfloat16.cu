#include "sm90_instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList shared_bfloat16() { return shared_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
