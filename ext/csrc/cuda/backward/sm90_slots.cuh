// Where packed sequences lie for the Hopper kernels of attention's backward. A slot is 128 rows. No two sequences share
// one: sequence i begins in slot first / 128 + i, where `first` is its first row in the tensor, and has as many as its
// rows need, for the next one begins that much later. So a slot's sequence is found from the offsets alone, and at most
// one slot for each sequence has no rows.
//
// Slots of keys are the tiles of thread blocks; slots of queries are where lse, d_sum and dQ's sums lie in the workspace.
#pragma once

#include "../attention/span.cuh"
#include "sm90_backward.h"

namespace cuda_llm_ops::cuda::backward {

__device__ __forceinline__ int first_slot(int first_row, int sequence) { return first_row / row_padding + sequence; }

// The sequence of a slot, or -1 before the first. The whole warp asks; 32 offsets are read at a time.
__device__ __forceinline__ int sequence_of(const int32_t* offsets, int total, int sequences, int slot) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int begun = 0;
  for (int from = 0; from < sequences; from += 32) {
    const int i = from + lane;
    const bool begins = i < sequences && first_slot(min(max(offsets[min(i, sequences)], 0), total), i) <= slot;
    const uint32_t these = __ballot_sync(~0u, begins);
    begun += __popc(these);
    if (these != ~0u) break;
  }
  return begun - 1;
}

}  // namespace cuda_llm_ops::cuda::backward
