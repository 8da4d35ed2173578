// Flash attention forward on Hopper for rows that TMA cannot describe, because they do not begin on multiples of 16
// bytes.
//
// Three realigner warps beside the producer's bring K and V tiles to a workspace in global memory, laid out as shared
// memory needs them; the producer loads finished tiles from there by bulk copies. Consumers realign the queries
// themselves. realigned_tiles.cuh and realigned_queries.cuh describe how, eight_rows.cuh the work on eight rows.
//
// Tiles have no swizzle: core matrices of [8 rows][column][row], each column of eight rows in 16 bytes. The rows of a
// tile are eight apart (realigned_row()), which masks and outputs take into account. Key blocks go from the first to
// the last: then all tiles of a head begin with the same ones, and few are needed at the start. If the last column is
// free at every head_dim of the kernel, V's is ones, and the product also sums the weights.
//
// From a tile to its stores: Consumer::run takes the tile, attend() (steps.cuh) goes through its key blocks,
// store_run() writes.
#pragma once

#include "../../numeric.cuh"
#include "../../ptx/atomic.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/tma.cuh"
#include "../../ptx/wgmma.cuh"
#include "instance.h"
#include "instance_of.h"
#include "realigned_queries.cuh"
#include "realigned_tiles.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "steps.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// RealignerRegisters: of a thread of the producer's warpgroup. The consumers get the rest of the 504 for three threads.
template <typename T, int HeadDim, int LeastHeadDim, int BlockN, int RealignerRegisters>
struct Realigned : Shape<T, HeadDim, BlockN, 2, 2>,
                   Registers<2, RealignerRegisters, (504 - RealignerRegisters) / 16 * 8> {
  using Base = Shape<T, HeadDim, BlockN, 2, 2>;
  static constexpr bool realigned = true;
  // In V, the last column; at the multiples of 8 between those of 16, no head_dim of the kernel uses it.
  static constexpr bool ones_column = HeadDim % 16 != 0;
  static constexpr bool product_sums = ones_column;
  static constexpr uint32_t one = ptx::is_bfloat16<T> ? 0x3f80 : 0x3c00;
  static constexpr int least_head_dim = LeastHeadDim;
  static constexpr int chunks = HeadDim / 8;  // of 16 bytes, of a row
  // With an odd number of chunks, the last step of the scores' product begins a chunk before the previous one has
  // ended. Both have that chunk's columns, so the queries have halves there.
  static constexpr bool overlap = chunks % 2 == 1;
  static constexpr int q_slots = 2;                      // a tile's outputs leave from where its queries were
  static constexpr int q_bytes = chunks * 64 * 16;       // of one warpgroup
  static constexpr int kv_bytes = chunks * BlockN * 16;  // of one stage
  static constexpr int k_bytes = kv_bytes, v_bytes = kv_bytes, realigned_tile_bytes = 2 * kv_bytes;
  static constexpr int raw_chunks = chunks + 1;  // of a row as it lies in global memory
  static constexpr int raw_pitch = (raw_chunks | 1) * 16, raw_bytes = 8 * raw_pitch;
  static constexpr int raw_buffers = 3 * kRealigners;
  static constexpr int own_bytes = raw_buffers * raw_bytes;
  // Before the rings are used, they hold 64 raw rows in each of these.
  static constexpr int ring_slots = Base::stages * 2 * kv_bytes / (8 * raw_bytes);
  static constexpr int prologue_slots = ring_slots < 8 ? ring_slots : 8;
  static constexpr int own_barriers = 2 * prologue_slots;
  static constexpr int alignment = 128;
  static constexpr int shared_bytes = ring_bytes<Realigned> + 64 + kRealigners * 64;
  static_assert(HeadDim % 8 == 0 && HeadDim < 256 && BlockN % 64 == 0 && shared_bytes <= kMaxSharedBytes);
};

// Behind the barriers: what a tile of queries is, and the realigners' state.
template <typename C>
struct RealignedLayout : RingLayout<C> {
  using RingLayout<C>::RingLayout;

  __device__ __forceinline__ uint32_t raw_rows() const { return this->own; }
  __device__ __forceinline__ uint32_t prologue_full(int i) const { return this->own_barrier(i); }
  __device__ __forceinline__ uint32_t prologue_empty(int i) const { return prologue_full(C::prologue_slots + i); }
  __device__ __forceinline__ uint32_t first_ticket() const { return this->end_of_barriers(); }
  // The number of tiles whose outputs have left; realigners ask for it.
  __device__ __forceinline__ uint32_t tiles_left() const { return first_ticket() + 4; }
  // The tile in a slot of queries.
  __device__ __forceinline__ uint32_t next_tile(uint32_t slot) const {
    return (first_ticket() + 23) / 16 * 16 + slot * 16;
  }
  __device__ __forceinline__ uint32_t realigner_state(int number) const { return next_tile(C::q_slots) + number * 64; }
};

template <typename C>
struct RealignedConsumer : Steps<C, RealignedConsumer<C>, RealignedLayout<C>, Parameters> {
  using Base = Steps<C, RealignedConsumer<C>, RealignedLayout<C>, Parameters>;
  using Base::Base;
  using Base::d, Base::group, Base::lane, Base::n, Base::o, Base::p, Base::shared, Base::state;
  using typename Base::T, typename Base::Weights;
  uint32_t q_count = 0;  // tiles of queries before this one
  int tile_last;         // the tile's number of key blocks less one

  static constexpr uint64_t swizzle = uint64_t{3} << 62;  // of a descriptor: 0 for core matrices without swizzle
  static __device__ __forceinline__ uint64_t descriptor_of_rows(uint32_t tile) {
    return ptx::matrix_descriptor(tile, 128, C::chunks * 128) & ~swizzle;
  }

  __device__ __forceinline__ uint32_t own_queries() const {
    const uint32_t slot = q_count % C::q_slots;
    return shared.q + (slot * C::q_tiles + group) * C::q_bytes;
  }
  __device__ __forceinline__ uint32_t q_barrier() const { return q_count % C::q_slots; }
  // Outputs were put there and raw queries come there next, so every lane arrives for itself.
  __device__ __forceinline__ void release_q() const { ptx::mbarrier_arrive(shared.q_empty(q_barrier())); }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    const uint64_t q = descriptor_of_rows(own_queries());
    const uint64_t k = descriptor_of_rows(shared.k + stage * C::kv_bytes);
    this->wait_turn();
    ptx::wgmma_fence_operand(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::steps; ++i) {
      const int column = C::overlap && i == C::steps - 1 ? d - 16 : i * 16;
      ptx::Wgmma<n>::template ss<T, 1, 1>(s, q + column, k + column, i != 0);
    }
    ptx::wgmma_commit_group();
  }

  // o += weights v of the ring's V tile `count`; one committed group.
  __device__ __forceinline__ void issue_output(Weights& weights, uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    ptx::mbarrier_wait(shared.v_full(stage), ring_parity<C::stages>(count));
    const uint32_t tile = shared.v + stage * C::kv_bytes;
    const uint64_t v = ptx::matrix_descriptor(tile, C::chunks * 128, 128) & ~swizzle;
    this->fence_operands(weights);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::Wgmma<d>::template rs<T, 0>(o, weights[i], v + i * (C::chunks * 16), 1);
    ptx::wgmma_commit_group();
  }

  // The query, of this warpgroup's 64, whose scores this thread has: realigned_row() of the same place.
  __device__ __forceinline__ int row(int h) const {
    const int warp = threadIdx.x % 128 / 32;
    return lane / 4 * 8 + warp * 2 + h;
  }

  // As in Steps; j counts key blocks from the last one.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j, int first_row) const {
    j = tile_last - j;
    const int unmasked = p.causal ? min(p.seq_kv, first_row + 1) : p.seq_kv;
    if ((j + 1) * n > unmasked) {
      const int first_key = j * n + lane % 4 * 16;
      const int limit0 = p.causal ? min(p.seq_kv, first_row + row(0) + 1) : p.seq_kv;
      const int limit1 = p.causal ? min(p.seq_kv, first_row + row(1) + 1) : p.seq_kv;
      mask_scores<true>(s, limit0 - first_key, limit1 - first_key);
    }
  }

  __device__ __forceinline__ void after_first_scores() const { finish_store(); }
  __device__ __forceinline__ void after_last_scores() const {}

  __device__ __forceinline__ void attend(int first, uint32_t count, int first_row) {
    tile_last = first;
    Base::attend(first, count, first_row);
  }

  __device__ __forceinline__ void run() {
    const int tile_group = group;
    uint32_t count = 0;
    this->begin_turns();
    begin();
    for (int i = 0;; ++i) {
      const Tile tile = next_tile();
      if (!tile.valid) {
        finish_store();
        return;
      }
      if (tile.m < 0) continue;
      const int block_row = tile.m * C::block_m, first_row = block_row + tile_group * 64;
      const int blocks = key_blocks<n>(p, min((tile.m + 1) * C::block_m, p.seq_q));
      this->reset();
      // Runs never, since both warpgroups take every key block. Without it ptxas orders the instructions behind
      // otherwise.
      for (int skipped = blocks; skipped < blocks; ++skipped) this->skip(count++);
      if (blocks > 0) {
        attend(blocks - 1, count, first_row);
        count += blocks;
        store_run(this->head_of(tile), first_row);
      } else {
        release_q();
      }
      ++q_count;
    }
  }

  // The next tile, with its queries realigned by this warp. Those of the first tile are realigned by begin().
  __device__ __forceinline__ Tile next_tile() const {
    if (q_count == 0) return tile_at<C>(p, 0);
    const uint32_t slot = q_barrier(), words = shared.next_tile(slot);
    ptx::mbarrier_wait(shared.q_full(slot), (q_count - 1) / C::q_slots & 1);
    const Tile tile = tile_of(words);
    const bool run = ptx::load_shared(words + 12) >> group & 1;
    // The warps of a warpgroup wait for each other's queries when they wait for the warpgroup's turn.
    static_assert(C::ping_pong);
    if (tile.valid) realign_queries<C>(p, tile, group, run, own_queries(), kQueriesBarrier + group);
    return tile;
  }

  // Realigns the rows that all thread blocks need soonest, and this warp's first queries: no realigner could be
  // earlier.
  __device__ __forceinline__ void begin() {
    Prologue<C, RealignedLayout<C>>(p, shared).realign(static_cast<int>(threadIdx.x / 32));
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kPrologueBarrier + 1, 128 * C::consumers);
    ptx::bar_arrive(kPrologueBarrier, 32 + 128 * C::consumers);
  }

  __device__ __forceinline__ float row_factor(int h) const {
    if constexpr (C::ones_column) {
      // The last column is in the last of the four lanes that share a row.
      return finish(state.maximum[h], __shfl_sync(0xffffffffu, o[d / 2 - 3 + 2 * h], lane | 3));
    } else {
      return finish(state, h);
    }
  }

  // Writes rows of any alignment, which follow one another. They are put together where this warpgroup's queries were,
  // and one bulk copy brings all whole chunks of 16 bytes to global memory. If a row begins in the middle of a word of
  // shared memory, each lane joins its second element and the next lane's first.
  __device__ __forceinline__ void store_run(T* head, int first_row) {
    const int quad = lane % 4, next = lane / 4 * 4 + (quad + 1) % 4;
    const uint64_t start = reinterpret_cast<uint64_t>(head + first_row * p.out_seq);
    const uint32_t image = own_queries() + start % 16;
    const int pitch = p.head_dim * 2;
    ptx::bar_sync(kQueriesBarrier + group, 128);  // nobody reads queries any more
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = row_factor(h);
      const uint32_t to = image + row(h) * pitch;
      const auto word = [&](int g) { return pack_pair<T>(o[4 * g + 2 * h] * factor, o[4 * g + 2 * h + 1] * factor); };
      // The same in all lanes of a warp, because their rows are eight apart.
      if (to & 2) {
        uint32_t mine = word(0);
        if (quad == 0) store_shared_16(to, mine);
#pragma unroll
        for (int g = 0; g < d / 8; ++g) {
          const uint32_t later = g + 1 < d / 8 ? word(g + 1 < d / 8 ? g + 1 : g) : 0;
          const uint32_t beside = __shfl_sync(0xffffffffu, quad == 0 ? later : mine, next);
          store_pair(to, 8 * g + 2 * quad + 1, __funnelshift_r(mine, beside, 16), 8 * g + 9 <= C::least_head_dim);
          mine = later;
        }
      } else {
#pragma unroll
        for (int g = 0; g < d / 8; ++g) store_pair(to, 8 * g + 2 * quad, word(g), 8 * g + 8 <= C::least_head_dim);
      }
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kQueriesBarrier + group, 128);
    const uint64_t end = start + static_cast<uint64_t>(min(64, p.seq_q - first_row) * pitch);
    const uint64_t whole = (start + 15) & ~uint64_t{15}, whole_end = end & ~uint64_t{15};
    if (threadIdx.x % 128 == 0) {
      if (whole < whole_end) {
        ptx::bulk_store(reinterpret_cast<void*>(whole), image + static_cast<uint32_t>(whole - start),
                        static_cast<uint32_t>(whole_end - whole));
        ptx::bulk_commit_group();
      }
    } else if (threadIdx.x % 128 / 32 == 1) {
      // The ends: the elements before the first whole chunk, and after the last.
      const uint64_t at = lane < 8 ? start + lane * 2 : whole_end + (lane - 8) * 2;
      if (lane < 8 ? at < min(whole, end) : lane < 16 && whole <= whole_end && at < end) {
        *reinterpret_cast<uint16_t*>(at) = load_shared_16(image + static_cast<uint32_t>(at - start));
      }
    }
    __syncwarp();
    // The first warp's release follows when the bulk copy has read: finish_store().
    if (threadIdx.x % 128 / 32 != 0) release_q();
  }

  // Of the tile before this one, if there was one.
  __device__ __forceinline__ void finish_store() const {
    if (q_count > 0 && threadIdx.x % 128 / 32 == 0) {
      if (lane == 0) ptx::bulk_wait_group_read<0>();
      ptx::mbarrier_arrive(shared.q_empty((q_count - 1) % C::q_slots));
      if (threadIdx.x == 0) ptx::atomic_exchange_shared(shared.tiles_left(), q_count);
    }
  }

  // Two elements of a row, as far as they are inside of it.
  __device__ __forceinline__ void store_pair(uint32_t to, int column, uint32_t pair, bool inside) const {
    if (inside || column + 1 < p.head_dim) {
      store_shared(to + column * 2, pair);
    } else if (column < p.head_dim) {
      store_shared_16(to + column * 2, pair);
    }
  }
  static __device__ __forceinline__ void store_shared_16(uint32_t address, uint32_t value) {
    *static_cast<uint16_t*>(__cvta_shared_to_generic(address)) = static_cast<uint16_t>(value);
  }
  static __device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
    *static_cast<uint32_t*>(__cvta_shared_to_generic(address)) = value;
  }
  static __device__ __forceinline__ uint16_t load_shared_16(uint32_t address) {
    return *static_cast<const uint16_t*>(__cvta_shared_to_generic(address));
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_realigned_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  using Layout = RealignedLayout<C>;
  const Layout shared(raw);
  const int warp = warp_of_block();
  if (warp == 0 && ptx::elect_sync()) {
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), C::consumers * 128);
    }
    for (int s = 0; s < C::prologue_slots; ++s) {
      ptx::mbarrier_init(shared.prologue_full(s), 1);
      ptx::mbarrier_init(shared.prologue_empty(s), C::consumers * 128);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 4 * C::consumers);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 4 * C::consumers);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (threadIdx.x == 128 * C::consumers) {
    *static_cast<uint32_t*>(__cvta_shared_to_generic(shared.first_ticket())) = claim_first_tickets(p.realignment);
    ptx::store_shared(shared.tiles_left(), 0);
  }
  __syncthreads();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    const int realigner = warp - 4 * C::consumers - 1;
    if (realigner >= 0) {
      Realigner<C, Layout>(p, shared, realigner).run();
    } else {
      Prologue<C, Layout>(p, shared).produce();
      ptx::bar_sync(kPrologueBarrier, 32 + 128 * C::consumers);  // the rings are free
      produce_realigned<C>(p, shared);
    }
    leave_counters(p.realignment, threadIdx.x % 32);
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    RealignedConsumer<C>(p, shared, warp / 4).run();
  }
#endif
}

template <typename T, int HeadDim, int LeastHeadDim, int BlockN, int RealignerRegisters>
Instance realigned(attention::TypedName name, const Cost& cost = {}) {
  using C = Realigned<T, HeadDim, LeastHeadDim, BlockN, RealignerRegisters>;
  Instance instance = instance_of<C>(name, reinterpret_cast<const void*>(&flash_realigned_kernel<C>), cost);
  if (C::ones_column) --instance.head_dim;  // the last column is not free for data
  return instance;
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
