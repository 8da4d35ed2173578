// Host side of the kernels for realigned rows: which problems they can compute, the workspace, the kernel's parameters.
// realigned.cuh is the device side.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "instance.h"
#include "schedule.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Whether a realigned instance can compute these arguments, given a workspace.
bool realignable(const Instance& instance, const AttentionArguments& arguments);

// Size of the workspace: the tiles of K and V, and counters behind them.
size_t realignment_workspace_bytes(const Instance& instance, const AttentionArguments& arguments);
// The counters at the end of the workspace, for a launch that gets no set of its own.
uint32_t* spare_realignment_counters(const Instance& instance, const AttentionArguments& arguments);

// A tensor for a kernel that realigns rows.
Rows rows_of(const void* pointer, const AttentionArguments& arguments, int seq, int heads, const HeadStrides& stride);

// Fills the kernel's parameters: which tiles are realigned together, and which counter counts which tiles. Each tile
// has a counter of its own if there are enough. Returns what was refused, or nullptr.
const char* fill_realignment(Realignment& parameters, const Instance& instance, const Plan& plan,
                             const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90::flash
