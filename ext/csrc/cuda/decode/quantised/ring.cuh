// The ring of ../mma/tma_ring.cuh, for 8-bit caches: its stages, the scales of tokens in them, and their consumer.
//
// To TMA and to the ring's producers, two numbers are one 16-bit element: a cache of head_dim 128 is one of head_dim 64
// with one panel a row. A block has twice as many keys, 32 for each warp. So a stage has as many bytes as with a 16-bit
// cache, and barriers and copies are as many a byte.
#pragma once

#include "../../ptx/cp_async.cuh"
#include "../../ptx/cp_async_mbarrier.cuh"
#include "../mma/tma_ring.cuh"
#include "rows.cuh"
#include "wide.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool Wide = false>
struct QuantisedShape {
  static constexpr bool wide = Wide;
  static constexpr int stages = Stages, tile_rows = TileRows;
  static constexpr int warps = Groups * Warps + kProducers;
  static constexpr int panels = HeadDim / 128;
  static constexpr int block_keys = Warps * (Wide ? kTileKeys : kWarpKeys);
  static constexpr int panel_bytes = block_keys * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys, or of values
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int ring_bytes = Stages * stage_bytes;
  static constexpr int stage_scales = 2 * block_keys;  // floats
  static constexpr int scale_bytes = Stages * stage_scales * 4;

  // With the powers of two of rows.cuh; what follows the queries of wide.cuh lies at a multiple of 1024.
  static constexpr int queries_bytes = query_bytes(HeadDim, TileRows) + (Wide ? 1024 : 128);
  static_assert(!Wide || scale_bytes % 1024 == 0);
  __host__ __device__ static constexpr int sums_bytes(int rows) {
    return Wide ? wide_merge_bytes(HeadDim, TileRows, Warps, 2)
                : merge_floats(merge_slots(Warps, rows, Groups), rows, HeadDim, TileRows) * 4;
  }
  __host__ __device__ static constexpr int merge_bytes(int rows) {
    return sums_bytes(rows) + (Wide ? wide_stats_bytes(TileRows, Warps) : Warps * kRows * 8);
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Arrivals that a full stage waits for.
__device__ __forceinline__ int arrivals_of_stage(const QuantisedParameters& p, int producers) {
  return producers + (p.token_scales != 0 ? 32 * producers : 0);
}

// After a producer warp has asked for a block: the scales of its keys, or of its values (or of both), into `to`; zeros
// behind the first `keys` of the block, and for what is in no page.
template <typename S, bool Both>
__device__ __forceinline__ void load_scales(const QuantisedParameters& p, const Loader<S, Both>& loader, int keys,
                                            float* to, uint32_t full) {
  constexpr int sides = Both ? 2 : 1;
#pragma unroll
  for (int side = 0; side < sides; ++side) {
    const bool values = Both ? side == 1 : loader.values;
    const CacheStrides& stride = values ? p.v_scale_stride : p.k_scale_stride;
    const float* const from = (values ? p.v_scale : p.k_scale) + loader.head * stride.head;
    const uint32_t place = ptx::shared_address(to + (values ? S::block_keys : 0));
#pragma unroll
    for (int i = 0; i < S::block_keys / 32; ++i) {
      const int key = i * 32 + loader.lane, box = key / p.box_rows;
      const int page = __shfl_sync(kAllLanes, loader.page, box);
      const int slot = __shfl_sync(kAllLanes, loader.slot, box) + key - box * p.box_rows;
      const bool known = key < keys && static_cast<unsigned>(page) < static_cast<unsigned>(p.num_pages);
      const int64_t offset = known ? page * stride.page + slot * stride.slot : 0;
      ptx::cp_async_ca_4(place + key * 4, from + offset, known ? 4 : 0);
    }
  }
  ptx::cp_async_mbarrier_arrive_noinc(full);
}

// Asks L2 for a block of keys and their values, each thread of `threads` a row at a time (ask_l2() of tma_ring.cuh).
template <typename S>
__device__ __forceinline__ void ask_l2_quantised(const QuantisedParameters& p, const Cursor& at, int thread,
                                                 int threads) {
#pragma unroll 1
  for (int index = thread; index < 2 * S::block_keys; index += threads) {
    const int key = at.block * S::block_keys + index % S::block_keys;
    if (key >= at.length) continue;
    const uint16_t* const row = guess_of_row(p, at.sequence, at.head, key, index >= S::block_keys);
#pragma unroll
    for (int column = 0; column < S::panels * 64; column += 64) {
      if (row != nullptr && 2 * column < p.head_dim) ptx::prefetch_l2(row + column);
    }
  }
}

// Where 16 keys of a warp lie in a stage: box after box, in each panel after panel.
template <typename S>
__device__ __forceinline__ int keys_in_stage(const MmaParameters& p, int key) {
  const int box = key / p.box_rows;
  return box * S::panels * p.box_rows * 128 + (key - box * p.box_rows) * 128;
}

// Clears a warp's values behind the length, of which `left` keys are within it: a weight of 0 would not hide a NaN.
template <typename S>
__device__ __forceinline__ void clear_quantised_values(uint8_t* values, int panel_bytes, int half_bytes, int left,
                                                       int lane) {
#pragma unroll 1
  for (int chunk = lane; chunk < (kWarpKeys - left) * S::panels * 8; chunk += 32) {
    const int row = left + chunk / (S::panels * 8), place = chunk % (S::panels * 8);
    *reinterpret_cast<uint4*>(values + place / 8 * panel_bytes + row / 16 * half_bytes + row % 16 * 128 +
                              place % 8 * 16) = make_uint4(0u, 0u, 0u, 0u);
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

// consume() of tma_ring.cuh, for tiles of 32 keys. `scales` are those of the warp's first key in stage 0.
template <typename S, typename W>
__device__ __forceinline__ void consume_quantised(W& worker, uint8_t* ring, const float* scales, uint32_t full,
                                                  int& stage, uint32_t& phase, int left, int end, int step,
                                                  int in_block, int lane) {
  const int panel_bytes = worker.p.box_rows * 128;
  const int in_stage = keys_in_stage<S>(worker.p, in_block * kWarpKeys);
  const int half_bytes = keys_in_stage<S>(worker.p, in_block * kWarpKeys + 16) - in_stage;
  const auto release = [&](uint32_t loaded) {
    ptx::mbarrier_arrive((full + (S::stages + stage) * 8) | (loaded & worker.p.zero));  // empty[stage]
    if (++stage == S::stages) stage = 0, phase ^= 1;
    left -= step;
  };
  const int whole = max(kWarpKeys + worker.p.seq_q - 1, end + 1);
#pragma unroll 1
  while (left >= whole) {
    const uint32_t keys = ptx::shared_address(ring) + stage * S::stage_bytes + in_stage;
    ptx::mbarrier_wait(full + stage * 8, phase);
    release(worker.template tile<true>(keys, keys + S::tile_bytes, panel_bytes, half_bytes,
                                       scales + stage * S::stage_scales, 0));
  }
#pragma unroll 1
  while (left > end) {
    const int offset = stage * S::stage_bytes + in_stage;
    const uint32_t keys = ptx::shared_address(ring) + offset;
    uint32_t loaded = 0;
    ptx::mbarrier_wait(full + stage * 8, phase);
    if (left > 0) {
      if (left < kWarpKeys) {
        clear_quantised_values<S>(ring + offset + S::tile_bytes, panel_bytes, half_bytes, left, lane);
      }
      loaded = worker.template tile<false>(keys, keys + S::tile_bytes, panel_bytes, half_bytes,
                                           scales + stage * S::stage_scales, left);
    }
    release(loaded);
  }
}
#endif

}  // namespace cuda_llm_ops::cuda::decode
