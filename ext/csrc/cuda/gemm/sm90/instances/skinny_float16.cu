#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList skinny_float16() { return skinny_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
