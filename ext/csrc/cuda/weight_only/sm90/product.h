// Weight-only products on Hopper, of operands that TMA can describe.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "../../../weight_only.h"
#include "../../device.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

// The device is a Hopper card, columns are a multiple of 16, and scales and zero points begin at multiples of 16 bytes.
bool supported(const WeightOnlyArguments& arguments, const DeviceFacts& device);
size_t workspace_bytes(const WeightOnlyArguments& arguments, const DeviceFacts& device);
const char* product(const WeightOnlyArguments& arguments, const DeviceFacts& device, cudaStream_t stream);
void attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
