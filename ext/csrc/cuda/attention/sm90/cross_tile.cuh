// Flash attention forward on Hopper for head_dim up to 64, without a gap between tiles.
//
// With few columns, the softmax takes longer than the products, and the tensor cores idle between tiles. So a warpgroup
// issues the first scores of the next tile together with the last product of this one: cross(). The softmax runs under
// that product, and the tile's outputs are stored after it. Queries are multiplied from registers, so their shared
// memory is free for the next tile at once. V has a panel of ones besides, so that the product also sums the weights.
//
// Producer and rings are those of plain.cuh; the ones lie behind the rings.
//
// From a tile to its stores: Consumer::run takes the tile, advance() goes through its key blocks, store_tile() writes.
#pragma once

#include "../../ptx/barrier.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/wgmma.cuh"
#include "instance.h"
#include "instance_of.h"
#include "producer.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "steps.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

template <typename T, int BlockN, int Consumers, int Stages>
struct CrossTile : Shape<T, 64, BlockN, Consumers, Stages>,
                   Registers<Consumers, Consumers == 3 ? 32 : 24, Consumers == 3 ? 160 : 240> {
  static constexpr bool cross_tile = true, product_sums = true;
  static constexpr int v_columns = 64 + 8;            // 8 columns of ones
  static constexpr int own_bytes = 16 * kPanelBytes;  // ones: a panel of 16 rows
  static constexpr int shared_bytes = ring_bytes<CrossTile>;
  static_assert(Stages >= 2 && shared_bytes <= kMaxSharedBytes);
};

// A tile, for one warpgroup.
template <typename T>
struct Place {
  T* head;        // its output
  int first_row;  // of this warpgroup's queries; -1: it has none, and passes the tile by
  int blocks;     // key blocks; 0: there is no such tile
  int before;     // key blocks before these, which other thread blocks have
  int part;       // of this thread block's range (stream_k.cuh); -1: no other thread block has keys of this tile
};

// `Consumer` says which keys of a tile are this thread block's (place_of), and stores the tile (store_tile).
template <typename C, typename Consumer, typename Layout>
struct CrossTileSteps : Steps<C, Consumer, Layout, Parameters> {
  using Base = Steps<C, Consumer, Layout, Parameters>;
  using Base::Base;
  using Base::d, Base::group, Base::lane, Base::n, Base::o, Base::p, Base::shared, Base::state;
  using typename Base::T, typename Base::Weights;
  using Place = flash::Place<typename C::T>;
  uint32_t q_fragments[C::steps][4];  // of this warpgroup's queries
  uint32_t q_count = 0;               // tiles of queries before this one

  // Asks early whether a tile has arrived, because the answer takes 40 clocks.
  __device__ __forceinline__ bool probe_k(uint32_t count) const {
    return ptx::mbarrier_test_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }
  __device__ __forceinline__ bool probe_v(uint32_t count) const {
    return ptx::mbarrier_test_wait(shared.v_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }

  // Returns when this warpgroup's queries are in registers.
  __device__ __forceinline__ void await_queries() {
    ptx::mbarrier_wait(shared.q_full(group), q_count & 1);
    const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const uint32_t from = this->own_queries() + row * kPanelBytes;
#pragma unroll
    for (int i = 0; i < d / 16; ++i) {
      ptx::ldmatrix_x4(q_fragments[i], from + i / 4 * 8192 + ((i % 4 * 2 + lane / 16) ^ (row % 8)) * 16);
    }
  }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    const uint64_t k = ptx::k_major_descriptor(shared.k + stage * C::k_bytes);
    this->wait_turn();
    ptx::wgmma_fence_operand(s);
#pragma unroll
    for (int i = 0; i < d / 16; ++i) ptx::wgmma_fence_operand(q_fragments[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::steps; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      ptx::Wgmma<n>::template rs<T, 0>(s, q_fragments[i], k + panel * (n * 8) + within, i != 0);
    }
    ptx::wgmma_commit_group();
  }

  // o = add * o + weights v of the ring's V tile `count`; one committed group. here: the tile has arrived.
  __device__ __forceinline__ void issue_output(Weights& weights, uint32_t count, int add = 1, bool here = false) {
    const uint32_t stage = ring_stage<C::stages>(count);
    if (!here) ptx::mbarrier_wait(shared.v_full(stage), ring_parity<C::stages>(count));
    const uint32_t tile = shared.v + stage * C::v_bytes;
    // The second panel of the descriptor is that of the ones, the same for every 16 rows.
    const uint64_t v = ptx::matrix_descriptor(tile, shared.own - tile, 1024);
    constexpr uint64_t next = 128 - (uint64_t{128} << 16);
    this->fence_operands(weights);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < n / 16; ++i) {
      ptx::Wgmma<C::v_columns>::template rs<T, 1>(o, weights[i], v + i * next, i == 0 ? add : 1);
    }
    ptx::wgmma_commit_group();
  }

  // As in Steps, with early probes. add: 0 if no product came before, and the outputs are to be forgotten. before: key
  // blocks that this tile begins with and that other thread blocks have.
  __device__ __forceinline__ void advance(Weights& previous, Weights& next, int j, uint32_t count, int first_row,
                                          int add, int before) {
    float s[n / 2], rescale[2];
    const bool v_here = probe_v(count);
    issue_scores(s, count + 1);
    issue_output(previous, count, add, v_here);
    this->pass_turn();
    const bool k_here = probe_k(count + 2);
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    this->release_k(count + 1);
    // If tiles have as many queries as blocks have keys, only the last block of a tile is masked.
    if constexpr (C::block_m != n) this->mask(s, before + j, first_row);
    const bool kept = try_block<T, false>(next, s, state, p.scale_log2);
    if (!kept) take_block<T, false>(next, s, state, rescale, p.scale_log2);
    if (j >= 1 && !k_here) this->wait_k(count + 2);
    ptx::wgmma_wait_group<0>();
    this->fence_operands(previous);
    this->release_v(count);
    if (!kept) rescale_output(o, rescale);
  }

  __device__ __forceinline__ void run() {
    uint32_t count = 0;
    this->begin_turns();
    int i = 0;
    Place place = next_place(i);
    Weights a, b;
    for (;;) {
      for (; place.blocks > 0 && place.first_row < 0; place = next_place(i)) {
        pass_by(count, place.blocks);
        count += place.blocks;
      }
      if (place.blocks == 0) return;
      begin_tile(a, count, place);
      for (bool more = true; more;) {
        const Place after = next_place(i);
        more = after.first_row >= 0;
        // ptxas takes count for the same in all lanes, and descriptors into uniform registers, as long as it is not the
        // loop's own counter that goes on into the next tile.
        const uint32_t last = count + (place.blocks - 1);
        int add = 0;  // to outputs of blocks before
        uint32_t at = count;
        for (int j = place.blocks - 2; j >= 0; j -= 2, at += 2) {
          advance(a, b, j, at, place.first_row, add, place.before);
          add = 1;
          if (j == 0) break;
          advance(b, a, j - 1, at + 1, place.first_row, 1, place.before);
        }
        // From here on the weights of the last block are in b: shorter code is worth more than the moves.
        if (place.blocks % 2 != 0) copy(b, a);
        if (more) {
          cross(b, a, last, place, after, add);
        } else {
          end(b, last, add);
          ++q_count;
          this->self().store_tile(place);
        }
        count = last + 1;
        place = after;
      }
    }
  }

  static __device__ __forceinline__ void copy(Weights& to, const Weights& from) {
#pragma unroll
    for (int i = 0; i < n / 16; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to[i][e] = from[i][e];
        ptx::wgmma_fence_operand(to[i][e]);  // here, and not between products
      }
    }
  }

  // A tile in which this warpgroup has no rows: only its turns, and its share of the rings.
  __device__ __forceinline__ void pass_by(uint32_t count, int blocks) const {
    for (int k = 0; k < blocks; ++k) {
      this->wait_turn();
      this->pass_turn();
      this->skip(count + k);
    }
  }

  // The weights of a tile's last key block, without a product to hide them under.
  __device__ __forceinline__ void begin_tile(Weights& weights, uint32_t count, const Place& place) {
    float s[n / 2];
    await_queries();
    this->wait_k(count);
    issue_scores(s, count);
    this->pass_turn();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(s);
    this->release_k(count);
    // Not before a product has used the fragments: an arrival does not wait for what ldmatrix still has to read, and
    // the next tile's queries, which TMA then writes, were seen in it.
    this->release_q();
    state.reset();
    take_last_block(weights, s, state, place);
    if (place.blocks > 1) this->wait_k(count + 1);
  }

  // The weights of a tile's last key block, the first to be computed. If the warpgroup's rows see nothing of its second
  // half, only the first half is computed.
  __device__ __forceinline__ void take_last_block(Weights& weights, float (&s)[n / 2], RowState& begun,
                                                  const Place& place) const {
    const int j = place.before + place.blocks - 1;
    if constexpr (C::block_m == n) {
      const bool half = p.causal && j * n + n / 2 >= place.first_row + 64;
      this->mask(s, j, place.first_row, half);
      take_first_block<T>(weights, s, begun, p.scale_log2, half);
    } else {
      float rescale[2];
      this->mask(s, j, place.first_row);
      take_block<T, false>(weights, s, begun, rescale, p.scale_log2);
    }
  }

  // From one tile to the next: the first scores of the next, and under their softmax the last product of this one.
  __device__ __forceinline__ void cross(Weights& previous, Weights& next, uint32_t count, const Place& place,
                                        const Place& after, int add) {
    float s[n / 2];
    const bool k_here = probe_k(count + 1), v_here = probe_v(count);
    ++q_count;
    await_queries();
    if (!k_here) this->wait_k(count + 1);
    issue_scores(s, count + 1);
    issue_output(previous, count, add, v_here);
    this->pass_turn();
    const bool later_here = probe_k(count + 2);
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    this->release_k(count + 1);
    this->release_q();
    RowState begun;
    begun.reset();
    take_last_block(next, s, begun, after);
    // As in advance(): without a branch here ptxas waits for the product before the exponentials.
    if (after.blocks > 1 && !later_here) this->wait_k(count + 2);
    ptx::wgmma_wait_group<0>();
    this->fence_operands(previous);
    this->release_v(count);
    this->self().store_tile(place);
    state = begun;
  }

  // The last product of a tile.
  __device__ __forceinline__ void end(Weights& last, uint32_t count, int add) {
    issue_output(last, count, add);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
    this->release_v(count);
  }

  // The next tile that has rows. i: the next of this thread block's tiles to look at.
  __device__ __forceinline__ Place next_place(int& i) const {
    for (;; ++i) {
      const Tile tile = tile_at<C>(p, i);
      if (!tile.valid) return {nullptr, -1, 0, 0, -1};
      if (tile.m < 0) continue;
      ++i;
      const int first_row = group < tile.units ? tile.row + group * 64 : -1;
      return this->self().place_of(tile, first_row, i - 1);
    }
  }

  __device__ __forceinline__ float row_factor(int h) const { return finish(state.maximum[h], o[d / 2 + 2 * h]); }
};

template <typename C>
struct CrossTileConsumer : CrossTileSteps<C, CrossTileConsumer<C>, RingLayout<C>> {
  using Base = CrossTileSteps<C, CrossTileConsumer<C>, RingLayout<C>>;
  using Base::Base;
  using Base::group, Base::p;
  using typename Base::Place;

  __device__ __forceinline__ Place place_of(const Tile& tile, int first_row, int /*index*/) const {
    return {this->head_of(tile), first_row, key_blocks<C::block_n>(p, min(tile.row + tile.units * 64, p.seq_q)), 0, -1};
  }
  __device__ __forceinline__ void store_tile(const Place& place) const {
    this->store_aligned(place.head, place.first_row);
  }
};

// By all threads: writes the ones.
template <typename C, typename Layout>
__device__ __forceinline__ void write_ones(const Layout& shared) {
  const uint32_t ones = pack_pair<typename C::T>(1.0f, 1.0f);
  for (uint32_t i = threadIdx.x; i < C::own_bytes / 4; i += C::threads) {
    *static_cast<uint32_t*>(__cvta_shared_to_generic(shared.own + 4 * i)) = ones;
  }
  ptx::fence_proxy_async_shared();
}

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_cross_tile_kernel(const __grid_constant__ Parameters p) {
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
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    CrossTileConsumer<C>(p, shared, warp / 4).run();
  }
#endif
}

template <typename T, int BlockN, int Consumers, int Stages>
Instance cross_tile(attention::TypedName name, const Cost& cost = {}) {
  using C = CrossTile<T, BlockN, Consumers, Stages>;
  return instance_of<C>(name, reinterpret_cast<const void*>(&flash_cross_tile_kernel<C>), cost);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
