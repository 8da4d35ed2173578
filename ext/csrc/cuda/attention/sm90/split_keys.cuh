// Flash attention forward on Hopper for few query rows: the two consumer warpgroups share the same 64 rows and split
// the keys between them. Warpgroup 0 takes the last key block and every second one before it, warpgroup 1 the others.
// At the end of a tile, warpgroup 1 hands its outputs, maxima and sums over through shared memory, and warpgroup 0
// combines both and writes. Producer, rings and tiles in shared memory are those of plain.cuh.
#pragma once

#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "instance.h"
#include "instance_of.h"
#include "producer.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "steps.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

template <typename T, int HeadDim, int BlockN, int Stages>
struct SplitKeys : Shape<T, HeadDim, BlockN, 2, Stages>, Registers<2, 24, 240> {
  static constexpr bool ping_pong = false, split_keys = true;
  static constexpr int block_m = 64, q_tiles = 1;
  static constexpr int own_bytes = 128 * (HeadDim / 2 + 4) * 4;  // what warpgroup 1 hands over
  static constexpr int own_barriers = 2;
  static constexpr int shared_bytes = ring_bytes<SplitKeys>;
  static_assert(HeadDim % 16 == 0 && shared_bytes <= kMaxSharedBytes);
  // A warpgroup waits for the K of its next block but one before it lets go of a V. It takes every second block, so
  // fewer stages would deadlock.
  static_assert(Stages >= 4);
};

template <typename C>
struct SplitKeysConsumer : Steps<C, SplitKeysConsumer<C>, RingLayout<C>, Parameters> {
  using Base = Steps<C, SplitKeysConsumer<C>, RingLayout<C>, Parameters>;
  using Base::Base;
  using Base::d, Base::group, Base::head_of, Base::o, Base::p, Base::release_q, Base::shared, Base::state;
  uint32_t q_count = 0;  // tiles before this one

  __device__ __forceinline__ void run() {
    uint32_t count = 0;
    for (int i = 0;; ++i) {
      const Tile tile = this->next_tile(i);
      if (!tile.valid) return;
      if (tile.m < 0) continue;
      const int first_row = tile.m * C::block_m;
      const int tile_blocks = key_blocks<C::block_n>(p, min((tile.m + 1) * C::block_m, p.seq_q));
      const int blocks = first_row < p.seq_q ? key_blocks<C::block_n>(p, min(first_row + 64, p.seq_q)) : 0;
      this->reset();
      this->await_queries(q_count);
      if (blocks > group) {
        this->attend(blocks - 1 - group, count + group, first_row);
      } else {
        release_q();
      }
      count += tile_blocks;
      combine(tile, first_row);
      ++q_count;
    }
  }

  // Warpgroup 1 hands its state and outputs to warpgroup 0 (register by register: no bank conflicts), which writes.
  __device__ __forceinline__ void combine(const Tile& tile, int first_row) {
    const uint32_t mine = shared.own + threadIdx.x % 128 * 4;
    const uint32_t full = shared.own_barrier(0), empty = full + 8;
    if (group == 1) {
      ptx::mbarrier_wait(empty, q_count & 1 ^ 1);
#pragma unroll
      for (int e = 0; e < d / 2; ++e) store_shared(mine + e * 512, o[e]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        store_shared(mine + (d / 2 + h) * 512, state.maximum[h]);
        store_shared(mine + (d / 2 + 2 + h) * 512, state.sum[h]);
      }
      ptx::mbarrier_arrive(full);
    } else {
      ptx::mbarrier_wait(full, q_count & 1);
      float own[2], other[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        join(state.maximum[h], state.sum[h], load_shared(mine + (d / 2 + h) * 512),
             load_shared(mine + (d / 2 + 2 + h) * 512), own[h], other[h]);
      }
#pragma unroll
      for (int e = 0; e < d / 2; ++e) {
        o[e] = o[e] * own[e % 4 / 2] + load_shared(mine + e * 512) * other[e % 4 / 2];
      }
      ptx::mbarrier_arrive(empty);
      this->store_aligned(head_of(tile), first_row);
    }
  }

  static __device__ __forceinline__ void store_shared(uint32_t address, float value) {
    *static_cast<float*>(__cvta_shared_to_generic(address)) = value;
  }
  static __device__ __forceinline__ float load_shared(uint32_t address) {
    return *static_cast<const float*>(__cvta_shared_to_generic(address));
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_split_keys_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const RingLayout<C> shared(raw);
  const int warp = warp_of_block();
  if (warp == 0 && ptx::elect_sync()) {
    prefetch_tensor_maps(p);
    ptx::mbarrier_init(shared.q_full(0), 1);
    ptx::mbarrier_init(shared.q_empty(0), 8);  // all warps of both warpgroups read the same queries
    ptx::mbarrier_init(shared.own_barrier(0), 128);
    ptx::mbarrier_init(shared.own_barrier(1), 128);
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 4);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // Thread blocks of the next grid start as those of this grid end, one by one.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    SplitKeysConsumer<C>(p, shared, warp / 4).run();
  }
#endif
}

template <typename T, int HeadDim, int BlockN, int Stages>
Instance split_keys(attention::TypedName name, const Cost& cost = {}) {
  using C = SplitKeys<T, HeadDim, BlockN, Stages>;
  return instance_of<C>(name, reinterpret_cast<const void*>(&flash_split_keys_kernel<C>), cost);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
