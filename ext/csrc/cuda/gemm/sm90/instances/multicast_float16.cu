#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList multicast_float16() { return multicast_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
