#include "../few_rows.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

KernelList few_rows_e5m2() { return few_rows_list<ptx::E5m2>(); }

}  // namespace cuda_llm_ops::cuda::fp8::sm90
