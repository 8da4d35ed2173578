// The portable (sm_80) GEMM behind cuda::gemm, with its choice of kernel open to be overridden for measurements.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "../../kernels.h"

namespace cuda_llm_ops::cuda::portable {

// As cuda::gemm. `config` < 0 lets the cost model choose among the tile configurations of the kernel family that the
// types and alignments ask for; otherwise it is the configuration's number in kernels.cuh.
const char* gemm(const GemmArguments& arguments, cudaStream_t stream, int config = -1);

void gemm_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::portable
