// Where packed sequences lie for the Hopper kernels of attention's backward, and the order of their tiles.
//
// lse, d_sum and dQ's sums lie in slots of 128 rows. No two sequences share one: sequence i begins in slot first / 128 +
// i, where `first` is its first row in the tensor, and has as many as its rows need, for the next one begins that much
// later. So a slot's sequence is found from the offsets alone, and about one slot for each sequence has no rows.
//
// Tiles of keys follow each other as the sequences do. Where a key's queries are those behind it, a tile is the longer
// the more keys of its sequence follow. Then the tiles go by these, over all sequences: the longest first, so that the
// GPU does not end on long ones. In either order a tile comes once, behind those before it in its sequence, also if the
// offsets fall: blocks that wait for each other rely on it.
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

// A tile of keys, the n-th of its sequence; behind the last tile the sequence is -1.
struct KeyTile {
  int sequence, n;
};

// The tiles of keys of packed sequences. A whole warp asks.
struct KeyTiles {
  const int32_t* offsets;
  int total, sequences, longest;

  // Of a sequence, each lane's own.
  __device__ __forceinline__ int of(int sequence) const {
    if (sequence >= sequences) return 0;
    const int first = min(max(offsets[sequence], 0), total), end = min(max(offsets[sequence + 1], first), total);
    return (min(end - first, longest) + row_padding - 1) / row_padding;
  }

  __device__ __forceinline__ KeyTile by_sequence(int index) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int from = 0; from < sequences; from += 32) {
      const int own = of(from + lane);
      int end = own;  // of the lane's tiles, of those of 32 sequences
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += before;
      }
      const int found = __popc(__ballot_sync(~0u, end <= index));
      if (found < 32) return {from + found, index - __shfl_sync(~0u, end - own, found)};
      index -= __shfl_sync(~0u, end, 31);
    }
    return {-1, 0};
  }

  // Those first that most tiles of their sequence follow.
  __device__ __forceinline__ KeyTile by_rest(int index) const {
    int rest = 1, more = (longest + row_padding - 1) / row_padding + 1;  // count(rest) > index >= count(more)
    if (count(1) <= index) return {-1, 0};
    while (more - rest > 1) {
      const int middle = (rest + more) / 2;
      (count(middle) > index ? rest : more) = middle;
    }
    index -= count(more);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int from = 0; from < sequences; from += 32) {
      const int own = of(from + lane);
      const uint32_t these = __ballot_sync(~0u, own >= rest);
      if (index < __popc(these)) {
        const bool is_it = own >= rest && __popc(these & ((1u << lane) - 1)) == index;
        const int found = __ffs(static_cast<int>(__ballot_sync(~0u, is_it))) - 1;
        return {from + found, __shfl_sync(~0u, own, found) - rest};
      }
      index -= __popc(these);
    }
    return {-1, 0};
  }

 private:
  // How many are `rest` tiles before their sequence's end, or more; the last is 1 before.
  __device__ __forceinline__ int count(int rest) const {
    int sum = 0;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < sequences; i += 32) sum += max(0, of(i) - rest + 1);
    return static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(sum)));
  }
};

}  // namespace cuda_llm_ops::cuda::backward
