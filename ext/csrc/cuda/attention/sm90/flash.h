// The Hopper (wgmma, TMA) path of flash_attention without options. It is part of the build only if that defines
// CUDA_LLM_OPS_SM90_ATTENTION (HOPPER_FAMILIES in setup.py).
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// Size of the workspace for these arguments; 0 if none is needed.
size_t flash_attention_workspace_bytes(const AttentionArguments& arguments);

// Whether a Hopper kernel computes these arguments, of which v has fewer columns than q and k.
bool takes_narrow_values(const AttentionArguments& arguments);

// Whether a Hopper kernel computes these arguments on the current device. Cheap: called before every launch.
bool flash_attention_supported(const AttentionArguments& arguments);

// As cuda::flash_attention: enqueues on `stream`, and returns nullptr or a static string that says what was refused.
const char* flash_attention(const AttentionArguments& arguments, cudaStream_t stream);

void attention_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::sm90
