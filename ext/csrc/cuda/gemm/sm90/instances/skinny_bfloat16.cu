#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList skinny_bfloat16() { return skinny_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
