#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList persistent_float16() { return persistent_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
