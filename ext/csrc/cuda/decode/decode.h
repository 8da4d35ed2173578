// The kernels among which the decode operator of ../../decode.h chooses.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../decode.h"

namespace cuda_llm_ops::cuda::decode {

// 16-bit types on tensor cores, keys split over the device.
bool mma_supported(const DecodeArguments& arguments);
size_t mma_workspace_bytes(const DecodeArguments& arguments);
const char* mma(const DecodeArguments& arguments, cudaStream_t stream);
void mma_attributes(std::vector<KernelAttributes>& into);

// Any type, alignment and scale, a block a query row.
const char* simt(const DecodeArguments& arguments, cudaStream_t stream);
void simt_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::decode
