// Parts of k that were multiplied apart, added. Each part is a dense m x n product in float32; they follow each other
// in the workspace.
#pragma once

#include <cuda_runtime_api.h>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// out = alpha (part 0 + part 1 + ...) + beta c, the parts being in arguments.workspace. n is a multiple of 8. Launched
// so that it may begin while the grid before it ends.
const char* add_parts(const GemmArguments& arguments, int parts, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
