// The kernels of this folder, which use no tensor core. Each file holds one kernel with its host code.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::attention {

const char* naive(const AttentionArguments& arguments, cudaStream_t stream);
void naive_attributes(std::vector<KernelAttributes>& into);

const char* tiled(const AttentionArguments& arguments, cudaStream_t stream);
void tiled_attributes(std::vector<KernelAttributes>& into);

// float32 only.
const char* flash_simt(const AttentionArguments& arguments, cudaStream_t stream);
const char* flash_simt_varlen(const AttentionArguments& arguments, const AttentionOptions& options,
                              cudaStream_t stream);
void flash_simt_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::attention
