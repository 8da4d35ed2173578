// Host side of Schedule::stream_k: whether and how tiles are shared, the workspace, the kernel's parameters.
// stream_k.cuh is the device side.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "instance.h"
#include "schedule.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Cost of a tile of two warpgroups, and of one, relative to a tile of three. Schedule::slices uses the first, too.
constexpr double kSmallTileCost = 0.82, kSmallestTileCost = 0.6;

// Plans Schedule::stream_k; leaves `plan` as it is if that is not possible. block_cost: of a tile's product with one
// block of keys.
void plan_stream_k(Plan& plan, const Instance& instance, const AttentionArguments& arguments, int multiprocessors,
                   double block_cost);

// Size of the workspace: the parts, and counters behind them. 0 for other plans.
size_t stream_k_workspace_bytes(const Instance& instance, const Plan& plan);
// The counters at the end of the workspace, for a launch that gets no set of its own.
uint32_t* spare_stream_k_counters(const Instance& instance, const Plan& plan, const AttentionArguments& arguments);

// Fills the kernel's parameters. Returns what CUDA refused, or nullptr.
const char* fill_stream_k(StreamK& parameters, const Instance& instance, const Plan& plan,
                          const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90::flash
