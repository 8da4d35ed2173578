// Flash attention forward on Hopper for head_dim up to 64, with stream-K: whole tiles are dealt to the thread blocks as
// in cross_tile.cuh, the same number to each. The keys of the tiles that remain are dealt in equal ranges, so that all
// thread blocks end together. A tile whose keys several ranges share is stored in parts and added up by reducers
// (partial_tiles.cuh). Schedule::stream_k in schedule.cuh says which tiles and keys a thread block takes.
#pragma once

#include "../../ptx/barrier.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "cross_tile.cuh"
#include "instance.h"
#include "instance_of.h"
#include "partial_tiles.cuh"
#include "producer.cuh"
#include "ring.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

template <typename T, int BlockN, int Consumers, int Stages>
struct StreamKConfig : CrossTile<T, BlockN, Consumers, Stages> {
  using Base = CrossTile<T, BlockN, Consumers, Stages>;
  static constexpr bool stream_k = true;
  static constexpr int own_barriers = (kPartsOfARange + 1) * Consumers;
  static constexpr int partial_bytes = 32 * (Base::v_columns / 2) * 4;  // of one warp's rows of a part
  static constexpr int reducer_bytes = 48;                              // state of a reducer
  static constexpr int part_bytes = 4 * Consumers * partial_bytes;
  static constexpr int shared_bytes =
      ring_bytes<StreamKConfig> + 16 + Consumers * (kMostRanges * partial_bytes + reducer_bytes);
  static_assert(Consumers == 3, "the producer's warpgroup has a warp for each warpgroup");
  static_assert(shared_bytes <= kMaxSharedBytes);
};

// Behind the barriers, the reducers' memory.
template <typename C>
struct StreamKLayout : RingLayout<C> {
  using RingLayout<C>::RingLayout;

  __device__ __forceinline__ uint32_t part_full(int group, int part) const {
    return this->k_full(0) + (4 * C::stages + part * C::q_tiles + group) * 8;
  }
  __device__ __forceinline__ uint32_t gathered(int group) const { return part_full(group, kPartsOfARange); }
  __device__ __forceinline__ uint32_t parts(int group) const {
    return (this->end_of_barriers() + 15) / 16 * 16 + group * (kMostRanges * C::partial_bytes);
  }
  __device__ __forceinline__ uint32_t reducer_state(int group) const {
    return parts(C::q_tiles) + group * C::reducer_bytes;
  }
};

template <typename C>
struct StreamKConsumer : CrossTileSteps<C, StreamKConsumer<C>, StreamKLayout<C>> {
  using Base = CrossTileSteps<C, StreamKConsumer<C>, StreamKLayout<C>>;
  using Base::Base;
  using Base::group, Base::o, Base::p, Base::shared, Base::state;
  using typename Base::Place;

  // index: the tile's, among this thread block's tiles; the parts come first.
  __device__ __forceinline__ Place place_of(const Tile& tile, int first_row, int index) const {
    const int blocks = tile.end_block - tile.first_block;
    return {this->head_of(tile), first_row, blocks, tile.first_block, blocks == p.stream_k.key_blocks ? -1 : index};
  }
  __device__ __forceinline__ void store_tile(const Place& place) const {
    if (place.part >= 0) {
      store_part<C>(p.stream_k, shared, place.part, group, o, state);
      return;
    }
    this->store_aligned(place.head, place.first_row);
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_stream_k_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const StreamKLayout<C> shared(raw);
  const int warp = warp_of_block();
  if (warp == 0 && ptx::elect_sync()) {
    prefetch_tensor_maps(p);
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), 4);
    }
    for (int w = 0; w < C::q_tiles; ++w) {
      for (int i = 0; i < kPartsOfARange; ++i) ptx::mbarrier_init(shared.part_full(w, i), 128);
      ptx::mbarrier_init(shared.gathered(w), 1);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 4 * C::consumers);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 4 * C::consumers);
    }
    ptx::fence_mbarrier_init();
  }
  write_ones<C>(shared);
  __syncthreads();
  // Thread blocks of the next grid start as those of this grid end, one by one.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
    if (warp > 4 * C::consumers) Reducer<C, StreamKLayout<C>>{p, shared, warp - 4 * C::consumers - 1}.run();
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    StreamKConsumer<C>(p, shared, warp / 4).run();
  }
#endif
}

template <typename T, int BlockN, int Consumers, int Stages>
Instance stream_k(attention::TypedName name, const Cost& cost = {}) {
  using C = StreamKConfig<T, BlockN, Consumers, Stages>;
  return instance_of<C>(name, reinterpret_cast<const void*>(&flash_stream_k_kernel<C>), cost);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
