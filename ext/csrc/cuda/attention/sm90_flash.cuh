// Flash attention forward on Hopper: a producer warp feeds K and V tiles by TMA through two rings of shared memory;
// consumer warpgroups of 64 query rows each multiply by wgmma and keep scores, weights and outputs in registers.
// Blocks are persistent; keys are walked from the last block to the first, so that masks come first. Packed tiles are walked
// from the first to the last: then all tiles of a head begin with the same ones, and few are wanted at the start.
//
// Joined kernels (head_dim 64) leave no gap between tiles: step by step a warpgroup issues the scores of a block and the
// product of the block before, also where that is the last of a tile and the scores are the next tile's; the softmax runs
// under the product, and the tile's outputs are stored after it.
//
// Shared memory, tiles in panels of 64 columns (128 bytes, the span of TMA's swizzle) one after another:
//   Q [warpgroup][panel][64 rows], K [stage][panel][BlockN rows], V the same. A head_dim between multiples of 64 wastes
//   the last panel's tail; columns past the real head_dim, and rows past the sequence, arrive as zeros.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../ptx/atomic.cuh"
#include "../ptx/barrier.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/setmaxnreg.cuh"
#include "../ptx/shared_words.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_instance.h"
#include "sm90_softmax.cuh"
#include "sm90_tiles.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// How a kernel works, a sum of:
enum : unsigned {
  plain = 0,
  ping_pong = 1,    // the warpgroups issue their products in turn, so that one's softmax falls under the others' products
  split_keys = 2,   // two warpgroups share 64 rows, take alternate blocks of keys and combine at the end
  q_registers = 4,  // the queries are multiplied from registers, and their shared memory is free at once
  paired = 8,       // two blocks of a cluster take neighbouring tiles and load half of each K and V for both
  summed = 32,      // V has a panel of ones more: the product sums the weights
  packed = 16,      // tiles come from a workspace that the producer warps fill (sm90_pack.cuh)
  joined = 64,      // a tile's first scores are issued together with the last product of the tile before
  even = 128,       // for Schedule::even alone: thread blocks share tiles' keys (sm90_even.cuh)
};

// Compile-time shape of a kernel.
template <typename T_, int HeadDim, int BlockN, int Consumers, int Stages, unsigned Ways>
struct Config {
  using T = T_;
  static constexpr int head_dim = HeadDim, block_n = BlockN, consumers = Consumers, stages = Stages;
  static constexpr bool ping_pong = Ways & flash::ping_pong, split_keys = Ways & flash::split_keys;
  static constexpr bool q_registers = Ways & flash::q_registers;
  static constexpr bool summed = Ways & flash::summed, packed = Ways & flash::packed;
  static constexpr bool joined = Ways & flash::joined, even = Ways & flash::even;
  // Packed, where the last column is free at any head_dim that the kernel takes: V's is ones, and the product sums the
  // weights as they are rounded.
  static constexpr bool ones_column = packed && HeadDim % 16 != 0;
  static constexpr uint32_t one = ptx::is_bfloat16<T> ? 0x3f80 : 0x3c00;
  static constexpr bool product_sums = summed || ones_column;
  static constexpr int v_columns = HeadDim + (summed ? 8 : 0);
  static constexpr int ones_bytes = summed ? 16 * 128 : 0;  // a panel of 16 rows
  static constexpr int cluster = Ways & flash::paired ? 2 : 1;
  static constexpr int panels = (HeadDim + 63) / 64;
  static constexpr int block_m = split_keys ? 64 : 64 * Consumers;
  static constexpr int q_tiles = split_keys ? 1 : Consumers;
  static constexpr int threads = Consumers * 128 + 128;
  static constexpr bool packed_tight = HeadDim / 2 + BlockN > 180;  // registers of outputs, scores, two sets of weights
  static constexpr int producer_registers =
      Consumers == 3 ? 32 : packed ? (packed_tight ? 56 : HeadDim > 160 ? 80 : 72) : cluster > 1 ? 40 : 24;
  static constexpr int consumer_registers =
      Consumers == 3 ? 160 : packed ? (packed_tight ? 224 : HeadDim > 160 ? 208 : 216) : cluster > 1 ? 232 : 240;
  static constexpr int steps = (HeadDim + 15) / 16;  // of 16 columns that the scores' product takes
  static constexpr int chunks = packed ? HeadDim / 8 : 8 * panels;  // of 16 bytes, of a row in shared memory
  // Packed, where chunks are odd in number: the scores' last step begins a chunk before the one before has ended, and has that
  // chunk's columns too, of which the queries have halves.
  static constexpr bool overlap = packed && chunks % 2 == 1;
  static constexpr int q_slots = packed && HeadDim < 256 ? 2 : 1;  // tiles of queries
  static constexpr int q_bytes = chunks * 64 * 16;                 // one warpgroup's
  static constexpr int kv_bytes = chunks * BlockN * 16;            // one stage
  static constexpr int least_head_dim = !packed          ? 0
                                        : HeadDim == 64  ? 1
                                        : HeadDim == 112 ? 97
                                        : HeadDim == 128 ? 113
                                        : HeadDim == 136 ? 129
                                        : HeadDim == 160 ? 136
                                                         : HeadDim - 31;  // the instance below has those up to it
  static constexpr int raw_chunks = chunks + 1;                    // of a row as it lies in global memory
  static constexpr int raw_pitch = (raw_chunks | 1) * 16, raw_bytes = packed ? 8 * raw_pitch : 0;
  static constexpr int raw_buffers = 9;                            // three of each packer
  static constexpr int combine_bytes = split_keys ? 128 * (HeadDim / 2 + 4) * 4 : 0;
  // Packed: 64 raw rows each, in the rings before these are used.
  static constexpr int begin_slots =
      !packed ? 0 : Stages * 2 * kv_bytes / (8 * raw_bytes) < 8 ? Stages * 2 * kv_bytes / (8 * raw_bytes) : 8;
  static constexpr int barriers =
      2 * q_tiles + 4 * Stages + (split_keys ? 2 : 0) + 2 * begin_slots + (even ? (parts_of_a_range + 1) * q_tiles : 0);
  // Schedule::even: what a range leaves of a warp's rows, and what a completer keeps besides.
  static constexpr int left_bytes = even ? 32 * (v_columns / 2) * 4 : 0, completer_bytes = 48;
  static constexpr int alignment = packed ? 128 : 1024;
  static constexpr int shared_bytes = alignment + q_slots * q_tiles * q_bytes + Stages * 2 * kv_bytes +
                                      combine_bytes + ones_bytes + raw_buffers * raw_bytes + barriers * 8 +
                                      (packed ? 64 + 3 * 64
                                       : even ? 16 + Consumers * (most_ranges * left_bytes + completer_bytes) : 0);
  static_assert(HeadDim % (packed ? 8 : 16) == 0 && BlockN % 16 == 0 && HeadDim <= 256 && BlockN <= 256);
  static_assert(shared_bytes <= 232448, "more shared memory than a block can have");
  static_assert(Consumers == 2 || (Consumers == 3 && !split_keys));
  // A warpgroup waits for the K of its next block but one before it lets go of a V: when it takes every other block,
  // fewer stages deadlock.
  static_assert(Stages >= (split_keys ? 4 : 2));
  static_assert(!summed || (HeadDim == 64 && !split_keys));
  static_assert(!split_keys || (!ping_pong && cluster == 1));
  // Warpgroups of which one sees fewer keys than another pass blocks by, which is not for between two products.
  static_assert(!joined || (ping_pong && q_registers && summed && !packed && cluster == 1));
  static_assert(!even || (joined && Consumers == 3));  // a warp beside the producing one for each warpgroup
  static_assert(!packed || (cluster == 1 && Consumers == 2 && !split_keys && !q_registers && !summed));
  // A tile's outputs leave from where its queries were while the next tile is begun.
  static_assert(!packed || (BlockN % 64 == 0 && q_slots == 2));
  // Of the registers at launch, a multiple of 8 a thread: setmaxnreg would wait for ever for more.
  static_assert(producer_registers + Consumers * consumer_registers <= 65536 / threads / 8 * 8 * (Consumers + 1));
};

// Named barriers 1.. (0 is __syncthreads): turns of the warpgroups.
constexpr uint32_t turn_barrier = 1;
constexpr uint32_t queries_barrier = 8;  // and the next: each of one warpgroup
constexpr uint32_t begun_barrier = 10;   // what is begun with is packed: the rings are free; and the next: queries are

template <int Stages>
__device__ __forceinline__ uint32_t ring_stage(uint32_t count) { return count % Stages; }
template <int Stages>
__device__ __forceinline__ uint32_t ring_parity(uint32_t count) { return count / Stages & 1; }

template <typename C>
struct Layout {
  uint32_t q, k, v, ones, combine, raw, barriers;

  __device__ __forceinline__ explicit Layout(const void* memory) {
    const uint32_t base = (ptx::shared_address(memory) + (C::alignment - 1u)) & ~(C::alignment - 1u);
    q = base;
    k = q + C::q_slots * C::q_tiles * C::q_bytes;
    v = k + C::stages * C::kv_bytes;
    ones = v + C::stages * C::kv_bytes;
    combine = ones + C::ones_bytes;
    raw = combine + C::combine_bytes;
    barriers = raw + C::raw_buffers * C::raw_bytes;
  }
  __device__ __forceinline__ uint32_t q_full(int i) const { return barriers + i * 8; }
  __device__ __forceinline__ uint32_t q_empty(int i) const { return barriers + (C::q_tiles + i) * 8; }
  __device__ __forceinline__ uint32_t k_full(int s) const { return barriers + (2 * C::q_tiles + s) * 8; }
  __device__ __forceinline__ uint32_t k_empty(int s) const { return k_full(s) + C::stages * 8; }
  __device__ __forceinline__ uint32_t v_full(int s) const { return k_full(s) + 2 * C::stages * 8; }
  __device__ __forceinline__ uint32_t v_empty(int s) const { return k_full(s) + 3 * C::stages * 8; }
  // When keys are split: what a warpgroup hands to the other, and that it has been read.
  __device__ __forceinline__ uint32_t combine_full() const { return k_full(0) + 4 * C::stages * 8; }
  __device__ __forceinline__ uint32_t combine_empty() const { return combine_full() + 8; }
  // Of Schedule::even: what a warpgroup has of a part is in global memory.
  __device__ __forceinline__ uint32_t part_full(int group, int part) const {
    return k_full(0) + (4 * C::stages + part * C::q_tiles + group) * 8;
  }
  __device__ __forceinline__ uint32_t gathered(int group) const { return part_full(group, parts_of_a_range); }
  __device__ __forceinline__ uint32_t begin_full(int i) const { return k_full(0) + (4 * C::stages + i) * 8; }
  __device__ __forceinline__ uint32_t begin_empty(int i) const { return begin_full(C::begin_slots + i); }
  __device__ __forceinline__ uint32_t first_ticket() const { return barriers + C::barriers * 8; }  // packed
  // .. and of how many tiles the outputs have left, which packers ask for.
  __device__ __forceinline__ uint32_t tiles_left() const { return first_ticket() + 4; }
  // Of a completer: where what ranges left is gathered, and what it keeps besides.
  __device__ __forceinline__ uint32_t left(int group) const {
    return (barriers + C::barriers * 8 + 15) / 16 * 16 + group * (most_ranges * C::left_bytes);
  }
  __device__ __forceinline__ uint32_t completer_state(int group) const { return left(C::q_tiles) + group * C::completer_bytes; }
  // Packed: what a tile is, in a slot of queries; 64 bytes that a packer keeps there.
  __device__ __forceinline__ uint32_t next_tile(uint32_t slot) const { return (first_ticket() + 23) / 16 * 16 + slot * 16; }
  __device__ __forceinline__ uint32_t packer_state(int packer) const { return next_tile(C::q_slots) + packer * 64; }
};

// The block's place in its cluster.
template <typename C>
__device__ __forceinline__ int cluster_rank() {
  if constexpr (C::cluster == 1) return 0;
  return static_cast<int>(ptx::cluster_ctarank());
}

// What a producer loads, in the order of the consumers' needs. load_k(first key, head, batch) and load_v the same,
// load_q(warpgroup, first query, head, batch).
template <typename C, typename LoadQ, typename LoadK, typename LoadV>
__device__ __forceinline__ void walk(const Parameters& p, const LoadQ& load_q, const LoadK& load_k,
                                     const LoadV& load_v) {
  const int rank = cluster_rank<C>();
  for (int i = 0;; ++i) {
    const Tile tile = tile_at<C>(p, i);
    if (!tile.valid) return;
    if (tile.m < 0) continue;
    const int row = C::joined ? tile.row : (tile.m * C::cluster + rank) * C::block_m;
    const int row_end = C::joined ? row + tile.units * 64 : (tile.m + 1) * (C::block_m * C::cluster);
    const int before = C::even ? tile.first_block : 0;
    const int blocks = C::even ? tile.end_block - before : key_blocks<C::block_n>(p, min(row_end, p.seq_q));
    const int kv_head = tile.head / p.group;
    const auto row_of = [&](int j) { return (before + j) * C::block_n; };
    load_k(row_of(blocks - 1), kv_head, tile.batch);
#pragma unroll
    for (int w = 0; w < C::q_tiles; ++w) {
      if (!C::joined || w < tile.units) load_q(w, row + w * 64, tile.head, tile.batch);
    }
    // Scores run one block ahead of the product with V, so K leads by one.
    for (int j = blocks - 2; j >= 0; --j) {
      load_k(row_of(j), kv_head, tile.batch);
      load_v(row_of(j + 1), kv_head, tile.batch);
    }
    load_v(row_of(0), kv_head, tile.batch);
  }
}

// One thread's work: TMA.
template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const Layout<C>& shared) {
  uint32_t k_count = 0, v_count = 0, q_parity = ~0u;  // a bit for each warpgroup: their tiles may differ in number
  const int share = cluster_rank<C>() * (C::block_n / C::cluster);
  const auto load_kv = [&](const CUtensorMap* map, uint32_t tile, uint32_t full, uint32_t empty, uint32_t parity,
                           int row, int head, int batch) {
    if constexpr (C::cluster == 1) {
      ptx::mbarrier_wait(empty, parity);
    } else {
      ptx::mbarrier_wait_cluster(empty, parity);
    }
    ptx::mbarrier_arrive_expect_tx(full, C::kv_bytes);
#pragma unroll
    for (int panel = 0; panel < C::panels; ++panel) {
      const uint32_t to = tile + panel * (C::block_n * 128) + share * 128;
      if constexpr (C::cluster == 1) {
        ptx::tma_load_4d(to, map, full, panel * 64, row, head, batch, ptx::evict_last);
      } else {
        ptx::tma_load_4d_multicast(to, map, full, panel * 64, row + share, head, batch, 3, ptx::evict_last);
      }
    }
  };
  const auto load_k = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(k_count), parity = ring_parity<C::stages>(k_count) ^ 1;
    load_kv(&p.k, shared.k + stage * C::kv_bytes, shared.k_full(stage), shared.k_empty(stage), parity, row, head,
            batch);
    ++k_count;
  };
  const auto load_v = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(v_count), parity = ring_parity<C::stages>(v_count) ^ 1;
    load_kv(&p.v, shared.v + stage * C::kv_bytes, shared.v_full(stage), shared.v_empty(stage), parity, row, head,
            batch);
    ++v_count;
  };
  const auto load_q = [&](int w, int row, int head, int batch) {
    ptx::mbarrier_wait(shared.q_empty(w), q_parity >> w & 1);
    q_parity ^= 1u << w;
    ptx::mbarrier_arrive_expect_tx(shared.q_full(w), C::q_bytes);
#pragma unroll
    for (int panel = 0; panel < C::panels; ++panel) {
      ptx::tma_load_4d(shared.q + w * C::q_bytes + panel * 64 * 128, &p.q, shared.q_full(w), panel * 64, row, head,
                       batch, ptx::evict_first);
    }
  };
  walk<C>(p, load_q, load_k, load_v);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash

#include "sm90_even.cuh"
#include "sm90_pack.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// One consumer warpgroup: its registers, and its place in the rings.
template <typename C>
struct Consumer {
  using T = typename C::T;
  using Weights = uint32_t[C::block_n / 16][4];  // packed to 16 bits: A fragments of 16 keys each
  static constexpr int n = C::block_n, d = C::head_dim, steps = C::steps;
  static constexpr int step = C::split_keys ? 2 : 1;  // from a block to this warpgroup's next

  const Parameters& p;
  const Layout<C>& shared;
  const int group;  // of this block's consumers
  const int lane;
  float o[C::v_columns / 2];
  RowState state;
  uint32_t q_fragments[C::q_registers ? steps : 1][4];  // of this warpgroup's queries
  uint32_t q_count = 0;  // tiles of queries before this one
  int tile_last;         // packed: its number of blocks less one

  __device__ __forceinline__ Consumer(const Parameters& parameters, const Layout<C>& layout, int warp_group)
      : p(parameters), shared(layout), group(warp_group), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C::ping_pong) ptx::bar_sync(turn_barrier + group, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C::ping_pong) {
      ptx::bar_arrive(turn_barrier + (group + 1 == C::consumers ? 0 : group + 1), 256);
    }
  }

  __device__ __forceinline__ void wait_k(uint32_t count) const {
    ptx::mbarrier_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }
  // Whether a tile is there, asked some time before it is wanted, as the answer takes 40 clocks.
  __device__ __forceinline__ bool probe_k(uint32_t count) const {
    return C::joined &&
           ptx::mbarrier_test_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }
  __device__ __forceinline__ bool probe_v(uint32_t count) const {
    return C::joined &&
           ptx::mbarrier_test_wait(shared.v_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }

  static constexpr uint64_t swizzled = uint64_t{3} << 62;  // of a descriptor: 0 for core matrices without swizzle

  // Of Q or K: in panels, or packed.
  static __device__ __forceinline__ uint64_t descriptor_of_rows(uint32_t tile) {
    if constexpr (C::packed) return ptx::matrix_descriptor(tile, 128, C::chunks * 128) & ~swizzled;
    return ptx::k_major_descriptor(tile);
  }

  __device__ __forceinline__ uint32_t own_queries() const {
    const uint32_t slot = C::q_slots == 1 ? 0 : q_count % C::q_slots;
    return shared.q + (slot * C::q_tiles + (C::split_keys ? 0 : group)) * C::q_bytes;
  }
  // Packed queries have a barrier for each slot, others one for each warpgroup.
  __device__ __forceinline__ uint32_t q_barrier() const {
    return C::packed ? q_count % C::q_slots : C::split_keys ? 0 : group;
  }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    const uint64_t q = descriptor_of_rows(own_queries());
    const uint64_t k = descriptor_of_rows(shared.k + stage * C::kv_bytes);
    wait_turn();
    ptx::wgmma_fence_operand(s);
    if constexpr (C::q_registers) {
#pragma unroll
      for (int i = 0; i < d / 16; ++i) ptx::wgmma_fence_operand(q_fragments[i]);
    }
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      if constexpr (C::packed) {
        const int column = C::overlap && i == steps - 1 ? d - 16 : i * 16;
        ptx::Wgmma<n>::template ss<T, 1, 1>(s, q + column, k + column, i != 0);
      } else if constexpr (C::q_registers) {
        ptx::Wgmma<n>::template rs<T, 0>(s, q_fragments[i], k + panel * (n * 8) + within, i != 0);
      } else {
        ptx::Wgmma<n>::template ss<T, 0, 0>(s, q + panel * 512 + within, k + panel * (n * 8) + within, i != 0);
      }
    }
    ptx::wgmma_commit_group();
  }

  // o += weights v of the ring's V tile `count`; one committed group.
  __device__ __forceinline__ void issue_output(Weights& weights, uint32_t count, int add = 1, bool here = false) {
    const uint32_t stage = ring_stage<C::stages>(count);
    if (!here) ptx::mbarrier_wait(shared.v_full(stage), ring_parity<C::stages>(count));
    const uint32_t tile = shared.v + stage * C::kv_bytes;
    // With a column of ones, the next panel is that of the ones, of every 16 rows the same.
    const uint64_t v = C::packed ? ptx::matrix_descriptor(tile, C::chunks * 128, 128) & ~swizzled
                                 : ptx::matrix_descriptor(tile, C::summed ? shared.ones - tile : n * 128, 1024);
    constexpr uint64_t next = C::packed ? C::chunks * 16 : C::summed ? 128 - (uint64_t{128} << 16) : 128;
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(weights[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < n / 16; ++i) {
      ptx::Wgmma<C::v_columns>::template rs<T, C::packed ? 0 : 1>(o, weights[i], v + i * next, i == 0 ? add : 1);
    }
    ptx::wgmma_commit_group();
  }

  __device__ __forceinline__ void release_k(uint32_t count) const {
    release_to_cluster(shared.k_empty(ring_stage<C::stages>(count)));
  }
  __device__ __forceinline__ void release_v(uint32_t count) const {
    release_to_cluster(shared.v_empty(ring_stage<C::stages>(count)));
  }
  // To all whose loads write the buffer.
  __device__ __forceinline__ void release_to_cluster(uint32_t barrier) const {
    if constexpr (C::cluster == 1) {
      release(barrier);
    } else {
      if (lane < C::cluster) ptx::mbarrier_arrive_cluster(barrier, static_cast<uint32_t>(lane));
    }
  }

  // The query, of this warpgroup's 64, whose scores are in this thread's registers: the first or second of its rows.
  __device__ __forceinline__ int row(int h) const {
    const int warp = threadIdx.x % 128 / 32;
    if constexpr (C::packed) return lane / 4 * 8 + warp * 2 + h;  // packed_row() of the same place
    return warp * 16 + lane / 4 + h * 8;
  }

  // Masks block j where its end lies past what the first row sees. Packed: the block so far from the last.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j, int first_row, bool half = false) const {
    if constexpr (C::packed) j = tile_last - j;
    const int unmasked = p.causal ? min(p.seq_kv, first_row + 1) : p.seq_kv;
    if ((j + 1) * n > unmasked) {
      const int first_key = j * n + lane % 4 * (C::packed ? 16 : 2);
      const int limit0 = p.causal ? min(p.seq_kv, first_row + row(0) + 1) : p.seq_kv;
      const int limit1 = p.causal ? min(p.seq_kv, first_row + row(1) + 1) : p.seq_kv;
      mask_scores<C::packed>(s, limit0 - first_key, limit1 - first_key, half);
    }
  }

  // Blocks j = first, first - step, .. >= 0 of keys, whose ring positions are count, count + step, ..
  __device__ __forceinline__ void attend(int first, uint32_t count, int first_row) {
    if constexpr (C::packed) tile_last = first;
    Weights a, b;
    {
      float s[n / 2], rescale[2];
      wait_k(count);
      issue_scores(s, count);
      pass_turn();
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(s);
      release_k(count);
      // Not before a product has used the fragments: an arrival does not wait for what ldmatrix still has to read, and
      // the next tile's queries, which TMA then writes, were seen in it.
      if constexpr (C::q_registers) release_q();
      if constexpr (C::packed) finish_store();
      mask(s, first, first_row);
      take_block<T, !C::product_sums>(a, s, state, rescale, p.scale_log2);
    }
    int j = first - step;
    if (j >= 0) wait_k(count + step);
    for (; j >= step; j -= 2 * step, count += 2 * step) {
      advance(a, b, j, count, first_row);
      advance(b, a, j - step, count + step, first_row);
    }
    if (j >= 0) {
      advance(a, b, j, count, first_row);
      if constexpr (!C::q_registers && !C::packed) release_q();
      end(b, count + step);
    } else {
      if constexpr (!C::q_registers && !C::packed) release_q();
      end(a, count);
    }
  }

  // One block: its scores, and under its softmax the product of the block before, whose weights are `previous`.
  // add: 0 where no product came before, and the outputs are to be forgotten.
  // before: blocks of keys that this tile begins with and other thread blocks have.
  __device__ __forceinline__ void advance(Weights& previous, Weights& next, int j, uint32_t count, int first_row,
                                          int add = 1, int before = 0) {
    float s[n / 2], rescale[2];
    const bool v_here = probe_v(count);
    issue_scores(s, count + step);
    issue_output(previous, count, add, v_here);
    pass_turn();
    const bool k_here = probe_k(count + 2 * step);
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    release_k(count + step);
    // Where tiles have as many queries as blocks have keys, only a tile's last block is masked.
    if constexpr (!C::joined || C::block_m != n) mask(s, before + j, first_row);
    const bool kept = try_block<T, !C::product_sums>(next, s, state, p.scale_log2);
    if (!kept) take_block<T, !C::product_sums>(next, s, state, rescale, p.scale_log2);
    if (j >= step && !k_here) wait_k(count + 2 * step);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(previous[i]);
    release_v(count);
    if (!kept) rescale_output(o, rescale);
  }

  // A tile, for a joined warpgroup.
  struct Place {
    T* head;        // its output
    int first_row;  // of this warpgroup's queries; -1: it has none, and passes the tile by
    int blocks;     // of keys; 0: there is no such tile
    int before;     // blocks of keys before these, which other thread blocks have
    int part;       // of this thread block's range; -1: no other has keys of this tile
  };

  // The next tile that has rows; i: of this block's tiles the next to look at.
  __device__ __forceinline__ Place next_place(int& i) const {
    for (;; ++i) {
      const Tile tile = tile_at<C>(p, i);
      if (!tile.valid) return {nullptr, -1, 0, 0, -1};
      if (tile.m < 0) continue;
      ++i;
      const int first_row = group < tile.units ? tile.row + group * 64 : -1;
      if constexpr (C::even) {
        const int blocks = tile.end_block - tile.first_block;
        return {head_of(tile), first_row, blocks, tile.first_block, blocks == p.even.key_blocks ? -1 : i - 1};
      }
      return {head_of(tile), first_row, key_blocks<n>(p, min(tile.row + tile.units * 64, p.seq_q)), 0, -1};
    }
  }

  // Tiles one after another without a gap: joined.
  __device__ __forceinline__ void run_joined() {
    uint32_t count = 0;
    if (group == C::consumers - 1) ptx::bar_arrive(turn_barrier, 256);
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
        // From here on the last block's weights are in b: shorter code is worth more than the moves.
        if (place.blocks % 2 != 0) copy(b, a);
        if (more) {
          cross(b, a, last, place, after, add);
        } else {
          end(b, last, add);
          ++q_count;
          store_tile(place);
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

  // A tile that is none of this warpgroup's: only its turns, and its share of the rings.
  __device__ __forceinline__ void pass_by(uint32_t count, int blocks) const {
    for (int k = 0; k < blocks; ++k) {
      wait_turn();
      pass_turn();
      skip(count + k);
    }
  }

  // The weights of a tile's last block of keys, without a product to hide them under.
  __device__ __forceinline__ void begin_tile(Weights& weights, uint32_t count, const Place& place) {
    float s[n / 2];
    await_queries();
    wait_k(count);
    issue_scores(s, count);
    pass_turn();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(s);
    release_k(count);
    release_q();
    state.reset();
    take_last_block(weights, s, state, place);
    if (place.blocks > 1) wait_k(count + 1);
  }

  // The weights of a tile's last block of keys, the first to be looked at. Where the warpgroup's rows see none of its
  // second half, only the first is computed.
  __device__ __forceinline__ void take_last_block(Weights& weights, float (&s)[n / 2], RowState& begun,
                                                  const Place& place) const {
    const int j = place.before + place.blocks - 1;
    if constexpr (C::block_m == n) {
      const bool half = p.causal && j * n + n / 2 >= place.first_row + 64;
      mask(s, j, place.first_row, half);
      take_first_block<T>(weights, s, begun, p.scale_log2, half);
    } else {
      float rescale[2];
      mask(s, j, place.first_row);
      take_block<T, false>(weights, s, begun, rescale, p.scale_log2);
    }
  }

  // From one tile to the next: the first scores of that, and under their softmax the last product of this.
  __device__ __forceinline__ void cross(Weights& previous, Weights& next, uint32_t count, const Place& place,
                                        const Place& after, int add) {
    float s[n / 2];
    const bool k_here = probe_k(count + 1), v_here = probe_v(count);
    ++q_count;
    await_queries();
    if (!k_here) wait_k(count + 1);
    issue_scores(s, count + 1);
    issue_output(previous, count, add, v_here);
    pass_turn();
    const bool later_here = probe_k(count + 2);
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    release_k(count + 1);
    release_q();
    RowState begun;
    begun.reset();
    take_last_block(next, s, begun, after);
    // As in advance(): without a branch here ptxas waits for the product before the exponentials.
    if (after.blocks > 1 && !later_here) wait_k(count + 2);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(previous[i]);
    release_v(count);
    store_tile(place);
    state = begun;
  }

  __device__ __forceinline__ void store_tile(const Place& place) const {
    if constexpr (C::even) {
      if (place.part >= 0) {
        leave_part<C>(p.even, shared, place.part, group, o, state);
        return;
      }
    }
    store_aligned(place.head, place.first_row);
  }

  // Returns when this warpgroup's queries are there, and, where they are multiplied from registers, in those.
  __device__ __forceinline__ void await_queries() {
    ptx::mbarrier_wait(shared.q_full(q_barrier()), q_count & 1);
    if constexpr (C::q_registers) {
      const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
      const uint32_t from = own_queries() + row * 128;
#pragma unroll
      for (int i = 0; i < d / 16; ++i) {
        ptx::ldmatrix_x4(q_fragments[i], from + i / 4 * 8192 + ((i % 4 * 2 + lane / 16) ^ (row % 8)) * 16);
      }
    }
  }

  // The last product.
  __device__ __forceinline__ void end(Weights& last, uint32_t count, int add = 1) {
    issue_output(last, count, add);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
    release_v(count);
  }

  // Packed: outputs were put there and raw queries come there next, so every lane arrives for itself.
  __device__ __forceinline__ void release_q() const {
    if constexpr (C::packed) {
      ptx::mbarrier_arrive(shared.q_empty(q_barrier()));
    } else {
      release(shared.q_empty(q_barrier()));
    }
  }

  // Blocks past what this warpgroup's rows see, which other warpgroups use: let them go by.
  __device__ __forceinline__ void skip(uint32_t count) const {
    const uint32_t stage = ring_stage<C::stages>(count), parity = ring_parity<C::stages>(count);
    ptx::mbarrier_wait(shared.k_full(stage), parity);
    release_k(count);
    ptx::mbarrier_wait(shared.v_full(stage), parity);
    release_v(count);
  }

  __device__ __forceinline__ void run() {
    const int tile_group = C::split_keys ? 0 : group, rank = cluster_rank<C>();
    uint32_t count = 0;
    if constexpr (C::ping_pong) {
      if (group == C::consumers - 1) ptx::bar_arrive(turn_barrier, 256);
    }
    if constexpr (C::packed) begin();
    for (int i = 0;; ++i) {
      const Tile tile = [&] {
        if constexpr (C::packed) {
          return next_packed_tile();
        } else {
          return tile_at<C>(p, i);
        }
      }();
      if (!tile.valid) {
        if constexpr (C::packed) finish_store();
        return;
      }
      if (tile.m < 0) continue;
      const int block_row = (tile.m * C::cluster + rank) * C::block_m;
      const int first_row = block_row + tile_group * 64;
      const int tile_blocks = key_blocks<n>(p, min((tile.m + 1) * (C::block_m * C::cluster), p.seq_q));
      const int block_blocks =
          C::cluster == 1 ? tile_blocks
                          : (block_row < p.seq_q ? key_blocks<n>(p, min(block_row + C::block_m, p.seq_q)) : 0);
      // Warpgroups that take turns take as many; otherwise each stops at what its own rows see.
      const int own_blocks = first_row < p.seq_q ? key_blocks<n>(p, min(first_row + 64, p.seq_q)) : 0;
      const int blocks = C::ping_pong ? block_blocks : own_blocks;
      state.reset();
#pragma unroll
      for (int e = 0; e < C::v_columns / 2; ++e) o[e] = 0.0f;
      if constexpr (!C::packed) await_queries();
      if constexpr (C::split_keys) {
        if (blocks > group) {
          attend(blocks - 1 - group, count + group, first_row);
        } else {
          release_q();
        }
        count += tile_blocks;
        combine(tile, first_row);
      } else {
        for (int skipped = blocks; skipped < tile_blocks; ++skipped) skip(count++);
        if (blocks > 0) {
          attend(blocks - 1, count, first_row);
          count += blocks;
          store(tile, first_row);
        } else {
          release_q();
        }
      }
      ++q_count;
    }
  }

  // Packed: the next tile, its queries packed by this warp. The first tile's are: begin().
  __device__ __forceinline__ Tile next_packed_tile() const {
    if (q_count == 0) return tile_at<C>(p, 0);
    const uint32_t slot = q_barrier(), words = shared.next_tile(slot);
    ptx::mbarrier_wait(shared.q_full(slot), (q_count - 1) / C::q_slots & 1);
    const Tile tile = tile_of(words);
    const bool run = ptx::load_shared(words + 12) >> group & 1;
    // Warps of a warpgroup wait for each other's where they wait for its turn.
    static_assert(!C::packed || C::ping_pong);
    if (tile.valid) pack_queries<C>(p, tile, group, run, own_queries(), queries_barrier + group);
    return tile;
  }

  // Packs what the first tiles of all blocks need soonest, and its own first queries: no packer could have them sooner.
  __device__ __forceinline__ void begin() {
    Beginner<C>(p, shared).pack(static_cast<int>(threadIdx.x / 32));
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(begun_barrier + 1, 128 * C::consumers);
    ptx::bar_arrive(begun_barrier, 32 + 128 * C::consumers);
  }

  // Warpgroup 1 hands its state and outputs to warpgroup 0 through shared memory (register-major: no bank conflicts).
  __device__ __forceinline__ void combine(const Tile& tile, int first_row) {
    const uint32_t mine = shared.combine + threadIdx.x % 128 * 4;
    if (group == 1) {
      ptx::mbarrier_wait(shared.combine_empty(), q_count & 1 ^ 1);
#pragma unroll
      for (int e = 0; e < d / 2; ++e) store_shared(mine + e * 512, o[e]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        store_shared(mine + (d / 2 + h) * 512, state.maximum[h]);
        store_shared(mine + (d / 2 + 2 + h) * 512, state.sum[h]);
      }
      ptx::mbarrier_arrive(shared.combine_full());
    } else {
      ptx::mbarrier_wait(shared.combine_full(), q_count & 1);
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
      ptx::mbarrier_arrive(shared.combine_empty());
      store(tile, first_row);
    }
  }

  static __device__ __forceinline__ void store_shared(uint32_t address, float value) {
    *static_cast<float*>(__cvta_shared_to_generic(address)) = value;
  }
  static __device__ __forceinline__ float load_shared(uint32_t address) {
    return *static_cast<const float*>(__cvta_shared_to_generic(address));
  }

  __device__ __forceinline__ float row_factor(int h) const {
    if constexpr (C::summed) {
      return finish(state.maximum[h], o[d / 2 + 2 * h]);
    } else if constexpr (C::ones_column) {
      // The last column is the last lane's of the four that share a row.
      return finish(state.maximum[h], __shfl_sync(0xffffffffu, o[d / 2 - 3 + 2 * h], lane | 3));
    } else {
      return finish(state, h);
    }
  }

  __device__ __forceinline__ T* head_of(const Tile& tile) const {
    return static_cast<T*>(p.out) + tile.batch * p.out_batch + tile.head * p.out_head;
  }

  // Normalises and writes.
  __device__ __forceinline__ void store(const Tile& tile, int first_row) {
    T* const head = head_of(tile);
    if constexpr (C::packed) {
      store_run(head, first_row);
    } else {
      store_aligned(head, first_row);
    }
  }

  // The four lanes of a row exchange pairs so that each writes 16 bytes of four 8-column groups.
  __device__ __forceinline__ void store_aligned(T* head, int first_row) const {
    const int quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = row_factor(h);
      const int at = first_row + row(h);
      T* const to = head + at * p.out_seq;
      const bool inside = at < p.seq_q;
#pragma unroll
      for (int g = 0; g + 4 <= d / 8; g += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = pack(T{}, o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
        }
        transpose_quad(x, quad);
        const int column = 8 * (g + quad);
        if (inside && column < p.head_dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
#pragma unroll
      for (int g = d / 8 / 4 * 4; g < d / 8; ++g) {
        const int column = 8 * g + 2 * quad;
        const uint32_t x = pack(T{}, o[4 * g + 2 * h] * factor, o[4 * g + 2 * h + 1] * factor);
        if (inside && column < p.head_dim) *reinterpret_cast<uint32_t*>(to + column) = x;
      }
    }
  }

  // Rows of any alignment, which follow one another: they are put together where this warpgroup's queries were, and one
  // bulk copy brings the whole chunks of 16 bytes among them to global memory. Where a row begins in the middle of a word
  // of shared memory, each lane joins its second element and the next lane's first.
  __device__ __forceinline__ void store_run(T* head, int first_row) {
    const int quad = lane % 4, next = lane / 4 * 4 + (quad + 1) % 4;
    const uint64_t start = reinterpret_cast<uint64_t>(head + first_row * p.out_seq);
    const uint32_t image = own_queries() + start % 16;
    const int pitch = p.head_dim * 2;
    ptx::bar_sync(queries_barrier + group, 128);  // nobody reads queries any more
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = row_factor(h);
      const uint32_t to = image + row(h) * pitch;
      const auto word = [&](int g) { return pack(T{}, o[4 * g + 2 * h] * factor, o[4 * g + 2 * h + 1] * factor); };
      // Of all lanes of a warp the same: their rows are eight apart.
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
    ptx::bar_sync(queries_barrier + group, 128);
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
  // Two elements of a row, if they are inside of it.
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

  // x[i] of lane q becomes x[q] of lane i, within each four lanes.
  static __device__ __forceinline__ void transpose_quad(uint32_t (&x)[4], int quad) {
    const bool odd = quad & 1, upper = quad & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t received = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
      (odd ? x[i] : x[i + 1]) = received;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2);
      (upper ? x[i] : x[i + 2]) = received;
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const Layout<C> shared(raw);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp == 0 && ptx::elect_sync()) {
    if constexpr (!C::packed) {
      ptx::prefetch_tensormap(&p.q);
      ptx::prefetch_tensormap(&p.k);
      ptx::prefetch_tensormap(&p.v);
    }
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), C::packed ? C::consumers * 128 : C::split_keys ? 8 : 4);
    }
    for (int s = 0; s < C::begin_slots; ++s) {
      ptx::mbarrier_init(shared.begin_full(s), 1);
      ptx::mbarrier_init(shared.begin_empty(s), C::consumers * 128);
    }
    if constexpr (C::split_keys) {
      ptx::mbarrier_init(shared.combine_full(), 128);
      ptx::mbarrier_init(shared.combine_empty(), 128);
    }
    if constexpr (C::even) {
      for (int w = 0; w < C::q_tiles; ++w) {
        for (int i = 0; i < parts_of_a_range; ++i) ptx::mbarrier_init(shared.part_full(w, i), 128);
        ptx::mbarrier_init(shared.gathered(w), 1);
      }
    }
    for (int s = 0; s < C::stages; ++s) {
      constexpr int readers = C::split_keys ? 4 : 4 * C::consumers * C::cluster;
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), readers);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), readers);
    }
    ptx::fence_mbarrier_init();
  }
  if constexpr (C::packed) {
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
    if (threadIdx.x == 128 * C::consumers) {
      *static_cast<uint32_t*>(__cvta_shared_to_generic(shared.first_ticket())) = claim_first_tickets(p.packing);
      ptx::store_shared(shared.tiles_left(), 0);
    }
  }
  if constexpr (C::summed) {
    const uint32_t ones = pack(typename C::T{}, 1.0f, 1.0f);
    for (uint32_t i = threadIdx.x; i < C::ones_bytes / 4; i += C::threads) Consumer<C>::store_shared(shared.ones + 4 * i, ones);
    ptx::fence_proxy_async_shared();
  }
  if constexpr (C::cluster == 1) {
    __syncthreads();
  } else {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
  if constexpr (!C::packed) {
    // The next grid's blocks come in as this one's end, one by one, and have begun when the last of these has ended.
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
  }
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if constexpr (C::packed) {
      const int packer = warp - 4 * C::consumers - 1;
      if (packer >= 0) {
        Packer<C>(p, shared, packer).run();
      } else {
        // The rings hold what is begun with until then.
        Beginner<C>(p, shared).produce();
        ptx::bar_sync(begun_barrier, 32 + 128 * C::consumers);
        produce_packed<C>(p, shared);
      }
      leave_counters(p.packing, threadIdx.x % 32);
    } else {
      if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
      if constexpr (C::even) {
        if (warp > 4 * C::consumers) Completer<C>{p, shared, warp - 4 * C::consumers - 1}.run();
      }
    }
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    Consumer<C> consumer(p, shared, warp / 4);
    if constexpr (C::joined) {
      consumer.run_joined();
    } else {
      consumer.run();
    }
  }
  if constexpr (C::cluster > 1) {
    // The other block's loads write here, and its warps arrive here, until it is done too.
    __syncwarp();
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
#endif
}

template <typename C>
inline Instance instance(const char* name, Cost cost = {}) {
  return {ptx::is_bfloat16<typename C::T> ? ScalarType::bfloat16 : ScalarType::float16,
          C::ones_column ? C::head_dim - 1 : C::head_dim,
          C::block_m * C::cluster,
          C::block_n,
          C::cluster,
          C::packed,
          C::split_keys,
          C::joined,
          C::even,
          cost,
          C::least_head_dim,
          C::packed ? 2 * C::kv_bytes : 0,
          C::even ? part_bytes<C> : 0,
          {"flash_attention", name, reinterpret_cast<const void*>(&flash_kernel<C>), C::threads, C::shared_bytes}};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
