// Sizes of what a thread block keeps in shared memory besides keys and values: queries, and the buffer in which the
// warps add their sums.
#pragma once

#include "mma.h"

namespace cuda_llm_ops::cuda::decode {

// Wide heads leave no registers for 16 queries; they are one tile in shared memory. Eight only pass through it.
__host__ __device__ constexpr bool shares_queries(int head_dim) { return head_dim >= 128; }
__host__ __device__ constexpr int query_bytes(int head_dim, int tile_rows) {
  return tile_rows == kFewRows || shares_queries(head_dim) ? tile_rows * head_dim * 2 : 0;
}

// Floats behind a row of the merge buffer: those that a warp's store meets differ in bank.
__host__ __device__ constexpr int merge_pad(int tile_rows) { return tile_rows == kFewRows ? 4 : 8; }

// Floats of the merge buffer, and integers of the lists.
__host__ __device__ constexpr int merge_floats(int slots, int rows, int head_dim, int tile_rows) {
  return slots * rows * (head_dim + merge_pad(tile_rows));
}

// Warps whose sums lie there at once. With 5 to 8 rows the second half of the warps adds to the first before: so two
// thread blocks fit on a multiprocessor. Two groups of warps have one alone.
__host__ __device__ constexpr int merge_slots(int warps, int rows, int groups) {
  return groups == 1 && rows > 4 && rows <= 8 ? warps / 2 : warps;
}

}  // namespace cuda_llm_ops::cuda::decode
