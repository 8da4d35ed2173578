#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList split_k_float16() { return split_k_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
