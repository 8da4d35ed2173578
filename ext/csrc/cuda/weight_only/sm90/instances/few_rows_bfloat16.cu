#include "../few_rows.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

KernelList few_rows_bfloat16_kernels() { return few_rows_list<ScalarType::bfloat16>(); }

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
