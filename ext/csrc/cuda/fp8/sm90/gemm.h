// FP8 products on Hopper, of operands that TMA can describe.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "../../../fp8.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// Rows begin at multiples of 16 bytes, and there is something to sum.
bool supported(const Fp8GemmArguments& arguments);
const char* gemm(const Fp8GemmArguments& arguments, cudaStream_t stream);
void attributes(std::vector<KernelAttributes>& into);

// For tuning: the plans that can compute a product, the quickest by the model first; and a plan to be taken wherever it
// fits, until it is "" again.
std::vector<std::string> plans(const Fp8GemmArguments& arguments);
void force_plan(const std::string& name);

// Bytes for copies of the operands that TMA cannot describe; realign() makes them in arguments.workspace, and describes
// them in arguments.
size_t realign_bytes(const Fp8GemmArguments& arguments);
const char* realign(Fp8GemmArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::fp8::sm90
