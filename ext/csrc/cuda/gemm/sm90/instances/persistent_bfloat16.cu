#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList persistent_bfloat16() { return persistent_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
