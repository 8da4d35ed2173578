#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList swapped_columns_bfloat16() { return swapped_columns_list<__nv_bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::sm90
