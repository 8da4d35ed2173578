#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList split_k_bfloat16() { return split_k_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
