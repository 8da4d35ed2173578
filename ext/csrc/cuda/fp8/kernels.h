// The kernels among which the operators of ../../fp8.h choose.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../fp8.h"

namespace cuda_llm_ops::cuda::fp8 {

// Float32 sums on the CUDA cores: any size, layout and GPU.
const char* simt_gemm(const Fp8GemmArguments& arguments, cudaStream_t stream);
void simt_attributes(std::vector<KernelAttributes>& into);

void quantise_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::fp8
