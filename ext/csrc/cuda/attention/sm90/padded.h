// Attention of long rows that TMA cannot describe and for which there is no realigning kernel (head_dim 193 to 256): on
// copies of q, k and v whose rows are padded with zeros, and the output copied back.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Whether the copies are worth their time, and the output's rows follow one another.
bool worth_padding(const AttentionArguments& arguments);
size_t padded_workspace_bytes(const AttentionArguments& arguments);
// Copies q, k and v into the workspace; `padded` is the same attention on the copies.
const char* pad(const AttentionArguments& arguments, AttentionArguments& padded, cudaStream_t stream);
// Copies the output of `padded` to that of `arguments`.
const char* unpad(const AttentionArguments& padded, const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90::flash
