#include "../persistent.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

KernelList persistent_e5m2() { return persistent_list<ptx::E5m2>(); }

}  // namespace cuda_llm_ops::cuda::fp8::sm90
