#include "../few_rows.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

KernelList few_rows_e4m3() { return few_rows_list<ptx::E4m3>(); }

}  // namespace cuda_llm_ops::cuda::fp8::sm90
