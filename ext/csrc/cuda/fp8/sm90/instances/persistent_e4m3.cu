#include "../persistent.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

KernelList persistent_e4m3() { return persistent_list<ptx::E4m3>(); }

}  // namespace cuda_llm_ops::cuda::fp8::sm90
