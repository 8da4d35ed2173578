// Launches a plan of the Hopper GEMM.
#pragma once

#include <cuda_runtime_api.h>

#include "plan.h"

namespace cuda_llm_ops::cuda::sm90 {

const char* launch_plan(const GemmArguments& arguments, const Plan& plan, int sms, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
