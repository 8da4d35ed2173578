// Flash attention forward on Hopper for rows that TMA can describe: the plain variant, optionally with cluster
// multicast.
//
// One producer thread (producer.cuh) feeds K and V tiles by TMA through two rings of shared memory. Two consumer
// warpgroups of 64 query rows each multiply by wgmma (steps.cuh). Thread blocks are persistent: each takes one tile of
// queries after another (schedule.cuh).
//
// Tiles lie in shared memory in panels of 64 columns (128 bytes, TMA's swizzle), one panel after another. A head_dim
// between multiples of 64 wastes the tail of the last panel. Columns past the real head_dim, and rows past the
// sequence, arrive as zeros.
//
// From a tile to its stores: Consumer::run takes the tile, attend() goes through its key blocks, store_aligned()
// writes.
#pragma once

#include "../../ptx/barrier.cuh"
#include "../../ptx/cluster.cuh"
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

// How a plain kernel works, a sum of:
enum : unsigned {
  no_ways = 0,
  // The warpgroups issue their products in turn.
  ping_pong = 1,
  // The two thread blocks of a cluster take neighbouring tiles; each loads half of every K and V for both.
  multicast = 2,
};

template <typename T, int HeadDim, int BlockN, int Stages, unsigned Ways, int ValueDim>
struct Plain : Shape<T, HeadDim, BlockN, 2, Stages, ValueDim>,
               Registers<2, Ways & multicast ? 40 : 24, Ways & multicast ? 232 : 240> {
  static constexpr bool ping_pong = Ways & flash::ping_pong;
  static constexpr int cluster = Ways & multicast ? 2 : 1;
  static constexpr int shared_bytes = ring_bytes<Plain>;
  static_assert(HeadDim % 16 == 0 && ValueDim % 8 == 0 && Stages >= 2 && shared_bytes <= kMaxSharedBytes);
};

template <typename C>
struct PlainConsumer : Steps<C, PlainConsumer<C>, RingLayout<C>, Parameters> {
  using Base = Steps<C, PlainConsumer<C>, RingLayout<C>, Parameters>;
  using Base::attend, Base::group, Base::head_of, Base::p, Base::release_q, Base::shared, Base::skip;
  using Base::Base;
  uint32_t q_count = 0;  // tiles before this one

  __device__ __forceinline__ void run() {
    const int tile_group = group, rank = cluster_rank<C>();
    uint32_t count = 0;
    this->begin_turns();
    for (int i = 0;; ++i) {
      const Tile tile = this->next_tile(i);
      if (!tile.valid) return;
      if (tile.m < 0) continue;
      const int block_row = (tile.m * C::cluster + rank) * C::block_m;
      const int first_row = block_row + tile_group * 64;
      const int tile_blocks = key_blocks<C::block_n>(p, min((tile.m + 1) * (C::block_m * C::cluster), p.seq_q));
      const int block_blocks =
          C::cluster == 1 ? tile_blocks
                          : (block_row < p.seq_q ? key_blocks<C::block_n>(p, min(block_row + C::block_m, p.seq_q)) : 0);
      // Warpgroups that take turns take the same number; otherwise each stops at what its own rows see.
      const int own_blocks = first_row < p.seq_q ? key_blocks<C::block_n>(p, min(first_row + 64, p.seq_q)) : 0;
      const int blocks = C::ping_pong ? block_blocks : own_blocks;
      this->reset();
      this->await_queries(q_count);
      for (int skipped = blocks; skipped < tile_blocks; ++skipped) skip(count++);
      if (blocks > 0) {
        attend(blocks - 1, count, first_row);
        count += blocks;
        this->store_aligned(head_of(tile), first_row);
      } else {
        release_q();
      }
      ++q_count;
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const RingLayout<C> shared(raw);
  const int warp = warp_of_block();
  if (warp == 0 && ptx::elect_sync()) {
    prefetch_tensor_maps(p);
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), 4);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 4 * C::consumers * C::cluster);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 4 * C::consumers * C::cluster);
    }
    ptx::fence_mbarrier_init();
  }
  if constexpr (C::cluster == 1) {
    __syncthreads();
  } else {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
  // Thread blocks of the next grid start as those of this grid end, one by one.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    PlainConsumer<C>(p, shared, warp / 4).run();
  }
  if constexpr (C::cluster > 1) {
    // The other thread block's loads write here, and its warps arrive here, until it is done too.
    __syncwarp();
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
#endif
}

template <typename T, int HeadDim, int BlockN, int Stages, unsigned Ways, int ValueDim = HeadDim>
Instance plain(attention::TypedName name, const Cost& cost = {}) {
  using C = Plain<T, HeadDim, BlockN, Stages, Ways, ValueDim>;
  return instance_of<C>(name, reinterpret_cast<const void*>(&flash_kernel<C>), cost);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
