// Copies of operands that TMA cannot describe, because a line of theirs does not begin at a multiple of 16 bytes: once,
// with their lines moved apart, into a workspace that TMA can describe. And of few rows of `a` that TMA loads slowly.
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

// Bytes of workspace for few rows of an `a` that is stored k x m, turned into rows of k; 0 for any other product. TMA
// loads such rows slowly: each is a part of a line of 128 bytes, which it fills with zeros.
size_t turn_bytes(const GemmArguments& arguments);

// The product of the copy at `to`.
GemmArguments turned(const GemmArguments& arguments, const void* to);

// Copies `a` into arguments.workspace (turn_bytes(arguments) bytes, 256-byte aligned) and makes `arguments` describe
// the copy.
const char* turn(GemmArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
