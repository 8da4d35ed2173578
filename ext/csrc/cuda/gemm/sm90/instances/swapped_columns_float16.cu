#include "../instances.cuh"

namespace cuda_llm_ops::cuda::sm90 {

KernelList swapped_columns_float16() { return swapped_columns_list<__half>(); }

}  // namespace cuda_llm_ops::cuda::sm90
