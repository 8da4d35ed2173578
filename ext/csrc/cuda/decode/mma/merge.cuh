// Sizes of what a thread block keeps in shared memory besides keys and values: queries, and the buffer in which the
// warps add their sums.
#pragma once

#include "mma.h"

namespace cuda_llm_ops::cuda::decode {

// Wide heads leave no registers for 16 queries; they are one tile in shared memory. Eight only pass through it.
__host__ __device__ constexpr bool shares_queries(int head_dim) { return head_dim >= 128; }
__host__ __device__ constexpr int query_bytes(int head_dim, int tile_rows) {
  return tile_rows != kRows || shares_queries(head_dim) ? tile_rows * head_dim * 2 : 0;
}

// Floats behind a row of the merge buffer: those that a warp's store meets differ in bank.
__host__ __device__ constexpr int merge_pad(int tile_rows) { return tile_rows == kRows || tile_rows <= 4 ? 8 : 4; }

// Floats of the merge buffer, and integers of the lists.
__host__ __device__ constexpr int merge_floats(int slots, int rows, int head_dim, int tile_rows) {
  return slots * rows * (head_dim + merge_pad(tile_rows));
}

// Warps whose sums lie there at once. With 5 to 8 rows the second half of the warps adds to the first before: so two
// thread blocks fit on a multiprocessor. Two groups of warps have one alone.
__host__ __device__ constexpr int merge_slots(int warps, int rows, int groups) {
  return groups == 1 && rows > 4 && rows <= 8 ? warps / 2 : warps;
}

// Of wide.cuh: the weights of a tile of keys (in `parts`), twice for each warpgroup; in the same place, the sums of a
// unit.
__host__ __device__ constexpr int wide_merge_bytes(int head_dim, int tile_rows, int warps, int parts = 1) {
  const int weights = parts * warps / 4 * 2 * tile_rows * kWideKeys * 2;
  const int sums = merge_floats(1, tile_rows, head_dim, tile_rows) * 4;
  return weights > sums ? weights : (sums + 7) / 8 * 8;
}

// Behind them: statistics of rows; a number of each warp and of each warpgroup for each row.
__host__ __device__ constexpr int wide_stats_bytes(int tile_rows, int warps) {
  return tile_rows * (8 + warps * 4 + warps / 4 * 4);
}

}  // namespace cuda_llm_ops::cuda::decode
