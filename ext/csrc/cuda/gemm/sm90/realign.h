// Operands that TMA cannot describe, because a line of theirs does not begin at a multiple of 16 bytes: copied once,
// with their lines moved apart, into a workspace that TMA can describe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// Bytes of workspace for the copies; 0 if no copy is needed.
size_t realign_bytes(const GemmArguments& arguments);

// The time that copies of `bytes` bytes add to the product that follows, measured on one NVIDIA H200.
double realign_microseconds(size_t bytes);

// Copies what must be copied into arguments.workspace (realign_bytes(arguments) bytes, 256-byte aligned) and makes
// `arguments` describe the copies.
const char* realign(GemmArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
