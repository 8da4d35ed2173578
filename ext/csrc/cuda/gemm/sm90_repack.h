// Operands that TMA cannot describe, because a line of theirs does not begin at a multiple of 16 bytes: copied once, with
// their lines moved apart, into a workspace that TMA can describe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "../../kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// Bytes of workspace for the copies, or 0 where none is needed or the product is too small for them to pay: the kernels
// that shift lines into place in shared memory (mma_shifted.cuh) are faster then. Does not look at the device.
size_t repack_bytes(const GemmArguments& arguments);

// Copies what must be copied into arguments.workspace (repack_bytes(arguments) bytes, 256-byte aligned) and makes
// `arguments` describe the copies.
const char* repack(GemmArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
