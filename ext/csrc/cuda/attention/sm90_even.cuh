// A tile whose keys several thread blocks share, each a range of them: every warp leaves its outputs, undivided, with the
// maxima and sums of its rows, in global memory; the last of a tile's ranges to come adds them up, always in the same order.
//
// What a warp leaves of a tile are `kept` floats a lane, four of a lane beside the next lane's: [four][lane][4]. One counter
// for each of a tile's warps; no warp waits for another.
// Included by sm90_flash.cuh.
#pragma once

#include <cstdint>

#include "../ptx/atomic.cuh"
#include "sm90_instance.h"
#include "sm90_softmax.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// Adds this warp's rows of tile `left` of those left over to what the other ranges have of it. False where another range
// is still to come: then there is nothing to store yet. o: outputs, and in o[N - 4] and o[N - 2] the rows' sums.
template <int Consumers, int N>
__device__ __forceinline__ bool complete_tile(const Even& e, int left, int group, float (&o)[N], RowState& state) {
  static_assert(N % 4 == 0);
  constexpr int kept = N;  // o[N - 3] and o[N - 1] repeat the sums: the maxima are put there
  const int lane = threadIdx.x % 32, warp = group * 4 + threadIdx.x % 128 / 32;
  const uint32_t first = left * e.key_blocks;
  const uint32_t first_range = e.by_share.divide(first), last_range = e.by_share.divide(first + e.key_blocks - 1);
  if (first_range == last_range) return true;
  // Of a range, this warp's and lane's.
  const auto place = [&](uint32_t range) {
    const uint32_t part = range * e.parts + left - e.by_key_blocks.divide(range * e.share);
    return reinterpret_cast<float4*>(e.sums + static_cast<uint64_t>(part * (4 * Consumers) + warp) * (kept * 32)) + lane;
  };
  o[N - 3] = state.maximum[0];
  o[N - 1] = state.maximum[1];
  float4* const mine = place(blockIdx.x);
#pragma unroll
  for (int i = 0; i < N / 4; ++i) mine[i * 32] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
  __syncwarp();
  uint32_t* const counter = e.counters + left * (4 * Consumers) + warp;
  uint32_t before = 0;
  if (lane == 0) before = ptx::atomic_add_acq_rel(counter, 1);
  if (__shfl_sync(0xffffffffu, before, 0) != last_range - first_range) return false;
  if (lane == 0) *counter = 0;
  state.maximum[0] = state.maximum[1] = minus_infinity;
#pragma unroll
  for (int i = 0; i < N; ++i) o[i] = 0.0f;
#pragma unroll 1
  for (uint32_t range = first_range; range <= last_range; ++range) {
    const float4* const from = place(range);
    float4 x[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; ++i) x[i] = __ldcg(from + i * 32);
    const float maximum[2] = {x[N / 4 - 1].y, x[N / 4 - 1].w};
    float own[2], other[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float joint = ptx::max_nan(state.maximum[h], maximum[h]), shift = shift_of(joint);
      own[h] = ptx::ex2(state.maximum[h] - shift);
      other[h] = ptx::ex2(maximum[h] - shift);
      state.maximum[h] = joint;
    }
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      o[4 * i] = o[4 * i] * own[0] + x[i].x * other[0];
      o[4 * i + 2] = o[4 * i + 2] * own[1] + x[i].z * other[1];
      if (i < N / 4 - 1) {
        o[4 * i + 1] = o[4 * i + 1] * own[0] + x[i].y * other[0];
        o[4 * i + 3] = o[4 * i + 3] * own[1] + x[i].w * other[1];
      }
    }
  }
  return true;
}

// Bytes that one range leaves of one tile; outputs of `columns` columns, eight of them sums.
constexpr int part_bytes(int warpgroups, int columns) { return warpgroups * 4 * 32 * columns / 2 * 4; }

}  // namespace cuda_llm_ops::cuda::sm90::flash
