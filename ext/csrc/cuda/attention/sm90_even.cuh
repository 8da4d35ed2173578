// A tile whose keys several thread blocks share, each a range of them (Schedule::even).
//
//   consumers   leave a tile's outputs, undivided, with the maxima and sums of their rows, in global memory, and go on
//   completers  three warps beside the producing one, each for one warpgroup's rows: they count what was left of a tile,
//               by a counter for each of its warps; for the last of its ranges to come they add all up, always in the same
//               order, and write the tile's rows. No warp waits for another thread block.
//
// Barriers: part_full, one for each warpgroup and part (128 arrivals).
// What a warp leaves of a tile: [four floats][lane][4], the last four the sum and the maximum of the lane's first row, and
// those of its second.
// Included by sm90_flash.cuh, whose Layout it needs.
#pragma once

#include <cstdint>

#include "../ptx/atomic.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/shared_words.cuh"
#include "../ptx/special_registers.cuh"
#include "sm90_instance.h"
#include "sm90_softmax.cuh"
#include "sm90_tiles.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// Bytes that a range leaves of a tile.
template <typename C>
constexpr int part_bytes = C::consumers * 128 * (C::v_columns / 2) * 4;

// This lane's place in what warp `warp` of thread block `block` leaves of its part `part`.
template <typename C>
__device__ __forceinline__ float4* part_of(const Even& e, int block, int part, int warp) {
  const int64_t bytes =
      int64_t{block * parts_of_a_range + part} * part_bytes<C> + warp * (part_bytes<C> / (4 * C::consumers));
  return reinterpret_cast<float4*>(reinterpret_cast<unsigned char*>(e.sums) + bytes) + threadIdx.x % 32;
}

// A consumer's: o[N - 4] and o[N - 2] are the sums of its rows.
template <typename C, int N>
__device__ __forceinline__ void leave_part(const Even& e, const Layout<C>& shared, int part, int group, const float (&o)[N],
                                           const RowState& state) {
  float4* const to = part_of<C>(e, blockIdx.x, part, threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < N / 4 - 1; ++i) to[i * 32] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
  to[(N / 4 - 1) * 32] = make_float4(o[N - 4], state.maximum[0], o[N - 2], state.maximum[1]);
  ptx::mbarrier_arrive(shared.part_full(group, part));
}

template <typename C>
struct Completer {
  using T = typename C::T;
  static constexpr int groups = C::head_dim / 8;  // of columns: a lane has two of either row

  // Of the tile at hand, in shared memory, since registers are short: offsets from `tile_state`, in bytes.
  static constexpr uint32_t first_part = 0, first_out = 8;  // addresses: what the first range left; this warpgroup's rows
  static constexpr uint32_t rows = 16, ranges = 20, to_next = 24, counters = 28;

  const Parameters& p;
  const Layout<C>& shared;
  const int group;

  __device__ __forceinline__ uint32_t tile_state() const { return shared.completer_state(group); }
  static __device__ __forceinline__ int lane() { return ptx::fresh_tid_x() % 32; }

  __device__ __forceinline__ void run() const {
#pragma unroll 1
    for (int n = 0; n < parts_of_a_range * 4; ++n) {  // four warps' rows of each part
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

  // Whether this thread block shares a tile there with others, and this warpgroup has rows of it.
  __device__ __forceinline__ bool look_at(int i) const {
    const Even& e = p.even;
    const Part of_tile = part_at(e, ptx::opaque(static_cast<int>(blockIdx.x)), i);  // not computed ahead: registers are short
    if (!of_tile.any() || of_tile.end_block - of_tile.first_block == e.key_blocks) return false;
    const int tall = e.whole + of_tile.tile;
    const int batch_head = of_tile.small ? of_tile.tile : e.by_tall.divide(tall);
    const int row = (of_tile.small ? e.tall : tall - batch_head * e.tall) * C::block_m + group * 64;
    if (row >= p.seq_q) return false;
    if (lane() == 0) {
      const int batch = p.by_heads.divide(batch_head), head = batch_head - batch * p.heads;
      ptx::store_shared(tile_state() + rows, p.seq_q - row);
      ptx::store_shared(tile_state() + counters, (of_tile.left(e) * C::consumers + group) * 4);
      ptx::store_shared(tile_state() + first_out, reinterpret_cast<uint64_t>(static_cast<T*>(p.out) + batch * p.out_batch +
                                                                             head * p.out_head + row * p.out_seq));
      const auto range_of = [&](int key_block) {
        return static_cast<int>(of_tile.small ? e.of_small.by_share.divide(key_block) : e.of_tall.by_share.divide(key_block));
      };
      const int first_block = of_tile.tile * e.key_blocks, first = range_of(first_block);
      const int last = range_of(first_block + e.key_blocks - 1);
      // Of the first range; of the others it is their first.
      const int part = first * (of_tile.small ? e.of_small.share : e.of_tall.share) < first_block ? 1 : 0;
      ptx::store_shared(tile_state() + ranges, last - first + 1);
      ptx::store_shared(tile_state() + to_next, (parts_of_a_range - part) * part_bytes<C>);
      ptx::store_shared(tile_state() + first_part, reinterpret_cast<uint64_t>(part_of<C>(
                                                       e, first + (of_tile.small ? e.tall_ranges : 0), part, 0)));
    }
    return true;
  }

  __device__ __forceinline__ bool is_last(int warp) const {
    uint32_t last = 0;
    if (lane() == 0) {
      uint32_t* const counter = p.even.counters + ptx::load_shared(tile_state() + counters) + warp;
      last = ptx::atomic_add_acq_rel(counter, 1) + 1 == static_cast<uint32_t>(ptx::load_shared(tile_state() + ranges));
      if (last) *counter = 0;
    }
    return __shfl_sync(0xffffffffu, last, 0);
  }

  // take(place) of what each range left of this warp's rows, from the lane's first byte on.
  template <typename Take>
  __device__ __forceinline__ void each_range(int warp, const Take& take) const {
    const int within = (group * 4 + warp) * (part_bytes<C> / (4 * C::consumers)) + lane() * 16;
    uint64_t from = ptx::load_shared_64(tile_state() + first_part) + static_cast<uint32_t>(within);
    int step = ptx::load_shared(tile_state() + to_next);
#pragma unroll 1
    for (int left = ptx::load_shared(tile_state() + ranges); left > 0; --left) {
      take(reinterpret_cast<const unsigned char*>(from));
      from += step;
      step = parts_of_a_range * part_bytes<C>;
    }
  }
  static __device__ __forceinline__ float2 pair_at(const unsigned char* from, int bytes) {
    return __ldcg(reinterpret_cast<const float2*>(from + bytes));
  }

  // One after the other the lane's two rows, of which the second is 8 rows down, and its floats 8 bytes on.
  __device__ __forceinline__ void complete(int warp) const {
#pragma unroll 1
    for (int at = 0; at < 16; at += 8) {
      float maximum = minus_infinity, factor = 0.0f;
      each_range(warp, [&](const unsigned char* from) {
        const float2 state = pair_at(from, groups * 512 + at);
        float own, other;
        join(maximum, factor, state.y, state.x, own, other);
      });
      factor = finish(maximum, factor);
      maximum = shift_of(maximum);
#pragma unroll 1
      for (int g = 0; g < groups; ++g) {
        float2 o = {};
        each_range(warp, [&](const unsigned char* from) {
          const float2 x = pair_at(from, g * 512 + at);
          const float own = ptx::ex2(pair_at(from, groups * 512 + at).y - maximum);
          o.x = fmaf(x.x, own, o.x);
          o.y = fmaf(x.y, own, o.y);
        });
        const int row = warp * 16 + lane() / 4 + at, column = g * 8 + lane() % 4 * 2;
        if (row < ptx::load_shared(tile_state() + rows) && column < p.head_dim) {
          T* const to = reinterpret_cast<T*>(ptx::load_shared_64(tile_state() + first_out)) + row * p.out_seq + column;
          *reinterpret_cast<uint32_t*>(to) = pack(T{}, o.x * factor, o.y * factor);
        }
      }
    }
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
