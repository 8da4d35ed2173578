// The kernels among which the decode operator of ../../../decode_quantised.h chooses.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../../decode_quantised.h"

namespace cuda_llm_ops::cuda::decode {

// 16-bit queries on tensor cores, keys split over the device.
bool quantised_mma_supported(const QuantisedDecodeArguments& arguments);
size_t quantised_mma_workspace_bytes(const QuantisedDecodeArguments& arguments);
const char* quantised_mma(const QuantisedDecodeArguments& arguments, cudaStream_t stream);
void quantised_mma_attributes(std::vector<KernelAttributes>& into);

// Any type, alignment and scale, a block a query row.
const char* quantised_simt(const QuantisedDecodeArguments& arguments, cudaStream_t stream);
void quantised_simt_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::decode
