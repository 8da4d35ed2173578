#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList multicast_bfloat16() { return multicast_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
