// The lengths of the sequences, and where a warp is among their blocks of keys.
//
// Only the device knows the lengths. So each thread block reads them and keeps, for each sequence, the length and the
// number of blocks in front of it. One warp does this for few sequences; all warps share the work for many.
#pragma once

#include <cstdint>

#include "mma.h"

namespace cuda_llm_ops::cuda::decode {

constexpr unsigned kAllLanes = 0xffffffffu;

// Of `makers` warps that each make the lists of few sequences, or of all `warps`.
__host__ __device__ constexpr int list_integers(int makers, int warps, int batch) {
  return batch <= kFewSequences ? makers * 2 * kFewSequences : 2 * batch + (warps + 3) / 4 * 4;
}

// A position in the list of all blocks.
struct Cursor {
  int sequence, head, block;  // head: kv head and row block
  int blocks, length;         // of the sequence
};

// Of each sequence the length and, before it, the blocks of one head of all sequences before it.
struct Lists {
  int2* of;
  int total;  // blocks of one head of all sequences

  __device__ __forceinline__ int length(int sequence) const { return of[sequence].x; }
  __device__ __forceinline__ int before(int sequence) const { return of[sequence].y; }
};

template <int BlockKeys>
__device__ __forceinline__ int blocks_of(int length) {
  return (length + BlockKeys - 1) / BlockKeys;
}

__device__ __forceinline__ int length_of(const MmaParameters& p, int sequence) {
  return min(max(__ldcg(p.cache_lens + sequence * p.lens_stride), 0), p.capacity);
}

// A guess of a length: it is read while the grid in front may still write it. A test may make it wrong.
#ifndef CUDA_LLM_OPS_DECODE_GUESS
#define CUDA_LLM_OPS_DECODE_GUESS(found) (found)
#endif
__device__ __forceinline__ int guess_of_length(const MmaParameters& p, int sequence) {
  return min(max(CUDA_LLM_OPS_DECODE_GUESS(length_of(p, sequence)), 0), p.capacity);
}

// One warp's inclusive sum.
__device__ __forceinline__ int scan_of_warp(int value, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// The lists of few sequences, made by one warp; from the guess of the lengths where that is asked for.
template <int BlockKeys, bool Guess = false>
__device__ __forceinline__ Lists make_few_lists(const MmaParameters& p, int2* room, int lane) {
  const auto length_at = [&](int b) { return b < p.batch ? Guess ? guess_of_length(p, b) : length_of(p, b) : 0; };
  const int first = length_at(2 * lane), second = length_at(2 * lane + 1);
  const int blocks = blocks_of<BlockKeys>(first), both = blocks + blocks_of<BlockKeys>(second);
  const int through = p.batch <= 2 ? both : scan_of_warp(both, lane);
  __syncwarp();
  room[2 * lane] = make_int2(first, through - both);
  room[2 * lane + 1] = make_int2(second, through - both + blocks);
  __syncwarp();
  return {room, __shfl_sync(kAllLanes, through, (p.batch - 1) / 2)};
}

// The lists that another warp made, after a barrier.
template <int BlockKeys>
__device__ __forceinline__ Lists few_lists(const MmaParameters& p, int2* room) {
  const int2 last = room[p.batch - 1];
  return {room, last.y + blocks_of<BlockKeys>(last.x)};
}

// True if the lists, made from a guess, hold the true lengths.
__device__ __forceinline__ bool few_lists_right(const MmaParameters& p, const Lists& lists, int lane) {
  const auto right = [&](int b) { return b >= p.batch || lists.length(b) == length_of(p, b); };
  const bool first = right(2 * lane), second = right(2 * lane + 1);
  return __all_sync(kAllLanes, first && second) != 0;
}

// The lists, made by all warps of the thread block. After them, room for integers.
template <int BlockWarps, int BlockKeys>
__device__ __forceinline__ Lists make_lists(const MmaParameters& p, int2* room, int warp, int lane) {
  int* const totals = reinterpret_cast<int*>(room + p.batch);
  Lists lists{room, 0};
  const int each = (p.batch + BlockWarps * 32 - 1) / (BlockWarps * 32);
  const int first = min((warp * 32 + lane) * each, p.batch), last = min(first + each, p.batch);
  int mine = 0;
#pragma unroll 1
  for (int b = first; b < last; ++b) {
    const int length = length_of(p, b);
    lists.of[b].x = length;
    mine += blocks_of<BlockKeys>(length);
  }
  const int through = scan_of_warp(mine, lane);
  if (lane == 31) totals[warp] = through;
  __syncthreads();
  int before = through - mine;
#pragma unroll
  for (int w = 0; w < BlockWarps; ++w) {
    before += w < warp ? totals[w] : 0;
    lists.total += totals[w];
  }
#pragma unroll 1
  for (int b = first; b < last; ++b) {
    lists.of[b].y = before;
    before += blocks_of<BlockKeys>(lists.length(b));
  }
  __syncthreads();
  return lists;
}

}  // namespace cuda_llm_ops::cuda::decode
