// Partial results of tiles whose keys several thread blocks share (Schedule::stream_k), and their reduction.
//
//   consumers   store a tile's outputs, not yet divided by the row sums, with the maxima and sums of their rows, in
//               global memory, and go on with the next tile
//   reducers    three warps beside the producer's, each for the rows of one warpgroup. They count the parts of a tile
//               that are stored, with one counter for each warp of the tile. The reducer that counts the last part adds
//               all up, always in the same order, and writes the tile's rows. So no warp waits for another thread
//               block.
//
// Barriers: part_full, one for each warpgroup and part (128 arrivals: the warpgroup has stored its rows); gathered, one
// for each reducer (the parts of a warp's rows are in shared memory). Layout of the part of one warp: [four
// floats][lane][4]. The last four floats are the sum and the maximum of the lane's first row, and those of its second.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/atomic.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/special_registers.cuh"
#include "../../ptx/tma.cuh"
#include "instance.h"
#include "schedule.cuh"
#include "softmax.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// Bytes of the part of one thread block.
template <typename C>
constexpr int part_bytes_of = 4 * C::consumers * C::partial_bytes;

// This lane's place in the part number `part` of warp `warp` of thread block `block`.
template <typename C>
__device__ __forceinline__ float4* part_of(const StreamK& e, int block, int part, int warp) {
  const int64_t bytes = int64_t{block * kPartsOfARange + part} * part_bytes_of<C> + warp * C::partial_bytes;
  return reinterpret_cast<float4*>(reinterpret_cast<unsigned char*>(e.sums) + bytes) + threadIdx.x % 32;
}

// By a consumer. o[N - 4] and o[N - 2] are the sums of its rows.
template <typename C, typename Layout, int N>
__device__ __forceinline__ void store_part(const StreamK& e, const Layout& shared, int part, int group,
                                           const float (&o)[N], const RowState& state) {
  float4* const to = part_of<C>(e, blockIdx.x, part, threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < N / 4 - 1; ++i) to[i * 32] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
  to[(N / 4 - 1) * 32] = make_float4(o[N - 4], state.maximum[0], o[N - 2], state.maximum[1]);
  ptx::mbarrier_arrive(shared.part_full(group, part));
}

template <typename C, typename Layout>
struct Reducer {
  using T = typename C::T;
  static constexpr int groups = C::head_dim / 8;  // of columns: a lane has two of either row

  // State of the current tile, in shared memory because registers are short: offsets from tile_state(), in bytes.
  static constexpr uint32_t first_part = 0, first_out = 8;  // addresses: the first part; this warpgroup's output rows
  static constexpr uint32_t rows = 16, ranges = 20, to_next = 24, counters = 28;
  static constexpr uint32_t gatherings = 32;  // of all tiles, before this

  const Parameters& p;
  const Layout& shared;
  const int group;

  __device__ __forceinline__ uint32_t tile_state() const { return shared.reducer_state(group); }
  static __device__ __forceinline__ int lane() { return ptx::fresh_tid_x() % 32; }

  __device__ __forceinline__ void run() const {
    if (lane() == 0) ptx::store_shared(tile_state() + gatherings, 0);
#pragma unroll 1
    for (int n = 0; n < kPartsOfARange * 4; ++n) {  // four warps' rows of each part
      if (n % 4 == 0) {
        __syncwarp();
        if (!look_at(n / 4)) {
          n += 3;
          continue;
        }
        __syncwarp();
        ptx::mbarrier_wait(shared.part_full(group, n / 4), 0);
      }
      if (is_last(n % 4)) complete(n % 4);
    }
  }

  // Whether part i of this thread block is of a tile that others share, and this warpgroup has rows of it.
  __device__ __forceinline__ bool look_at(int i) const {
    const StreamK& e = p.stream_k;
    const Part of_tile =
        part_at(e, ptx::opaque(static_cast<int>(blockIdx.x)), i);  // not computed ahead, because registers are short
    if (!of_tile.any() || of_tile.end_block - of_tile.first_block == e.key_blocks) return false;
    const int tall = e.whole + of_tile.tile;
    const int batch_head = of_tile.small ? of_tile.tile : e.by_tall.divide(tall);
    const int row = (of_tile.small ? e.tall : tall - batch_head * e.tall) * C::block_m + group * 64;
    if (row >= p.seq_q) return false;
    if (lane() == 0) {
      const int batch = p.by_heads.divide(batch_head), head = batch_head - batch * p.heads;
      ptx::store_shared(tile_state() + rows, p.seq_q - row);
      ptx::store_shared(tile_state() + counters, (of_tile.left(e) * C::consumers + group) * 4);
      ptx::store_shared(tile_state() + first_out,
                        reinterpret_cast<uint64_t>(static_cast<T*>(p.out) + batch * p.out_batch + head * p.out_head +
                                                   row * p.out_seq));
      const Sharers all = sharers_of(e, of_tile);
      ptx::store_shared(tile_state() + ranges, all.count);
      ptx::store_shared(tile_state() + to_next, (kPartsOfARange - all.part) * part_bytes_of<C>);
      ptx::store_shared(tile_state() + first_part, reinterpret_cast<uint64_t>(part_of<C>(e, all.first, all.part, 0)));
    }
    return true;
  }

  __device__ __forceinline__ bool is_last(int warp) const {
    uint32_t last = 0;
    if (lane() == 0) {
      uint32_t* const counter = p.stream_k.counters + ptx::load_shared(tile_state() + counters) + warp;
      last = ptx::atomic_add_acq_rel(counter, 1) + 1 == static_cast<uint32_t>(ptx::load_shared(tile_state() + ranges));
      if (last) {
        *counter = 0;
        gather(warp);
      }
    }
    return __shfl_sync(0xffffffffu, last, 0);
  }

  // By one lane: loads all parts of that warp's rows into shared memory.
  __device__ __forceinline__ void gather(int warp) const {
    ptx::fence_proxy_async_global();
    const uint32_t full = shared.gathered(group);
    uint64_t from =
        ptx::load_shared_64(tile_state() + first_part) + static_cast<uint32_t>((group * 4 + warp) * C::partial_bytes);
    int step = ptx::load_shared(tile_state() + to_next), count = ptx::load_shared(tile_state() + ranges);
    uint32_t to = shared.parts(group);
    ptx::mbarrier_arrive_expect_tx(full, count * C::partial_bytes);
#pragma unroll 1
    for (; count > 0; --count) {
      ptx::bulk_load(to, reinterpret_cast<const void*>(from), C::partial_bytes, full);
      to += C::partial_bytes;
      from += step;
      step = kPartsOfARange * part_bytes_of<C>;
    }
  }

  static __device__ __forceinline__ float4 load_shared_16(uint32_t from) {
    return *static_cast<const float4*>(__cvta_shared_to_generic(from));
  }

  // Adds up the gathered parts, and writes these 16 rows.
  __device__ __forceinline__ void complete(int warp) const {
    const int gathering = ptx::load_shared(tile_state() + gatherings);
    ptx::mbarrier_wait(shared.gathered(group), gathering & 1);
    const uint32_t left = shared.parts(group) + lane() * 16;
    const uint32_t end = left + ptx::load_shared(tile_state() + ranges) * C::partial_bytes;
    float maximum[2] = {kMinusInfinity, kMinusInfinity}, factor[2] = {};
#pragma unroll 1
    for (uint32_t from = left; from < end; from += C::partial_bytes) {
      const float4 state = load_shared_16(from + groups * 512);
      float own, other;
      join(maximum[0], factor[0], state.y, state.x, own, other);
      join(maximum[1], factor[1], state.w, state.z, own, other);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factor[h] = finish(maximum[h], factor[h]);
      maximum[h] = shift_of(maximum[h]);
    }
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      float o[4] = {};
#pragma unroll 1
      for (uint32_t from = left; from < end; from += C::partial_bytes) {
        const float4 x = load_shared_16(from + g * 512), state = load_shared_16(from + groups * 512);
        const float own[2] = {ptx::ex2(state.y - maximum[0]), ptx::ex2(state.w - maximum[1])};
        o[0] = fmaf(x.x, own[0], o[0]);
        o[1] = fmaf(x.y, own[0], o[1]);
        o[2] = fmaf(x.z, own[1], o[2]);
        o[3] = fmaf(x.w, own[1], o[3]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp * 16 + lane() / 4 + h * 8, column = g * 8 + lane() % 4 * 2;
        if (row < ptx::load_shared(tile_state() + rows) && column < p.head_dim) {
          T* const to = reinterpret_cast<T*>(ptx::load_shared_64(tile_state() + first_out)) + row * p.out_seq + column;
          *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(o[2 * h] * factor[h], o[2 * h + 1] * factor[h]);
        }
      }
    }
    __syncwarp();  // all have read
    if (lane() == 0) ptx::store_shared(tile_state() + gatherings, gathering + 1);
    __syncwarp();
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
