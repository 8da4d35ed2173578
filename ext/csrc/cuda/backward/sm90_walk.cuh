// What the Hopper kernels of attention's backward share (sm90_backward.cuh, sm90_wide.cuh): shared memory, the walk of
// a thread block over its tiles of queries, the warp that loads, the turns, and what a warpgroup of 64 keys does with
// scores.
//
// A configuration C says: T; head_dim of Q and K, value_dim of V and dO, in panels of 64 columns; block_m queries by
// block_n keys of a tile; deterministic, windowed, packed; bytes of the parts of shared memory; arrivals that release a
// buffer.
#pragma once

#include <cstdint>

#include "../numeric.cuh"
#include "../ptx/atomic.cuh"
#include "../ptx/barrier.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/cvt.cuh"
#include "../ptx/ex2.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/red.cuh"
#include "../ptx/setmaxnreg.cuh"
#include "../ptx/shared_pair.cuh"
#include "../ptx/shared_vectors.cuh"
#include "../ptx/special_registers.cuh"
#include "../ptx/stmatrix.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_backward.h"
#include "sm90_work.cuh"

namespace cuda_llm_ops::cuda::backward {

// How dQ is added, and which masks there are. Packed sequences have any.
enum class Way { free_order, in_turn, window, packed, packed_in_turn };

constexpr bool is_in_turn(Way way) { return way == Way::in_turn || way == Way::packed_in_turn; }
constexpr bool is_packed(Way way) { return way == Way::packed || way == Way::packed_in_turn; }

constexpr int consumers = 256;  // threads of the two warpgroups

// Named barriers 1.. (0 is __syncthreads).
constexpr uint32_t ds_barrier = 1;     // dS is stored, and both warpgroups may read it
constexpr uint32_t added_barrier = 2;  // and the next, of one warpgroup: its part of dQ is added
constexpr uint32_t dq_stored = 4;      // so: its part of dQ is in shared memory
constexpr uint32_t dq_free = 6;        // so: and was read there

template <typename C>
struct Layout {
  uint32_t k, other_k, v, q, d_out, ds, weights, dq, lse, d_sum, barriers;

  __device__ __forceinline__ explicit Layout(const void* memory) {
    k = (ptx::shared_address(memory) + 1023u) & ~1023u;
    other_k = k + C::k_bytes;
    v = other_k + C::other_k_bytes;
    q = v + C::v_bytes;
    d_out = q + C::q_stages * C::q_bytes;
    ds = d_out + C::o_stages * C::d_out_bytes;
    weights = ds + C::ds_buffers * C::ds_bytes;
    dq = weights + C::weight_bytes;
    lse = dq + C::dq_bytes;
    d_sum = lse + C::q_stages * C::row_bytes;
    barriers = d_sum + C::o_stages * C::row_bytes;
  }
  __device__ __forceinline__ uint32_t k_full() const { return barriers; }
  __device__ __forceinline__ uint32_t v_full() const { return barriers + 8; }
  __device__ __forceinline__ uint32_t turn(int warpgroup) const { return barriers + 16 + warpgroup * 8; }
  __device__ __forceinline__ uint32_t q_full(uint32_t s) const { return barriers + 32 + s * 8; }
  __device__ __forceinline__ uint32_t q_empty(uint32_t s) const { return q_full(C::q_stages + s); }
  __device__ __forceinline__ uint32_t o_full(uint32_t s) const { return q_full(2 * C::q_stages + s); }
  __device__ __forceinline__ uint32_t o_empty(uint32_t s) const { return o_full(C::o_stages + s); }
  // Of pairs of blocks: both halves of dS are there; the other block has read its copy.
  __device__ __forceinline__ uint32_t ds_full(uint32_t s) const { return o_full(2 * C::o_stages + s); }
  __device__ __forceinline__ uint32_t ds_free(uint32_t s) const { return ds_full(2 + s); }
  // Of packed sequences, in their place: a tile has landed that has rows of others (sm90_packed.cuh).
  __device__ __forceinline__ uint32_t k_landed() const { return ds_full(0); }
  __device__ __forceinline__ uint32_t v_landed() const { return ds_full(1); }
  __device__ __forceinline__ uint32_t q_landed(uint32_t s) const { return ds_full(2 + s); }
  __device__ __forceinline__ uint32_t o_landed(uint32_t s) const { return ds_full(4 + s); }
};

// The buffer of a block's tile i, of `Stages`, and the parity of its barriers.
template <int Stages>
__device__ __forceinline__ uint32_t stage_of(uint32_t i) {
  return i % Stages;
}
template <int Stages>
__device__ __forceinline__ uint32_t parity_of(uint32_t i) {
  return i / Stages & 1;
}

// Of a block, with what there is beside the parts that C names.
template <typename C>
constexpr int shared_bytes_of() {
  constexpr int barriers = 4 + 2 * C::q_stages + 2 * C::o_stages + (C::packed ? 6 : 4);
  return 1024 + C::k_bytes + C::other_k_bytes + C::v_bytes + C::q_stages * (C::q_bytes + C::row_bytes) +
         C::o_stages * (C::d_out_bytes + C::row_bytes) + C::ds_buffers * C::ds_bytes + C::weight_bytes + C::dq_bytes +
         barriers * 8;
}

// Of a pair of blocks, each adds up two panels of dQ; of three panels, each two of them in turn, tile for tile. The
// first of a block's two.
template <typename C>
__device__ __forceinline__ int first_panel(int rank) {
  return C::panels == 4 ? 2 * rank : rank;
}

// The panel of dQ that a warpgroup of a pair of blocks adds up in tile m, or -1.
template <typename C>
__device__ __forceinline__ int panel_of(int rank, int warpgroup, int m) {
  const int panel = first_panel<C>(rank) + warpgroup;
  if (C::panels == 3 && panel == 1 && rank != (m & 1)) return -1;
  return panel;
}

// The turn that a warpgroup takes in tile m, of those of the tile, or -1.
template <typename C>
__device__ __forceinline__ int slot_of(int warpgroup, int m) {
  if constexpr (C::cluster == 1) return warpgroup;
  return panel_of<C>(static_cast<int>(ptx::cluster_ctarank()), warpgroup, m);
}

template <int Panels, int TileRows>
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap* map, uint32_t barrier, int row, int head,
                                          int batch, uint64_t policy) {
#pragma unroll
  for (int panel = 0; panel < Panels; ++panel) {
    ptx::tma_load_4d(to + panel * TileRows * 128, map, barrier, panel * 64, row, head, batch, policy);
  }
}

// One thread's work: TMA.
template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const Layout<C>& shared, const Work& work) {
  const int key = first_key_of<C>(work);
  ptx::mbarrier_arrive_expect_tx(shared.k_full(), C::k_bytes + C::other_k_bytes);
  if constexpr (C::cluster == 2) {
    const int rank = static_cast<int>(ptx::cluster_ctarank());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::tma_load_4d(shared.other_k + i * 8192, &p.k, shared.k_full(), (first_panel<C>(rank) + i) * 64,
                       key + (rank == 0 ? 64 : -64), work.kv_head, work.batch, ptx::evict_first);
    }
  }
  load_tile<C::panels, C::block_n>(shared.k, &p.k, shared.k_full(), key, work.kv_head, work.batch, ptx::evict_first);
  ptx::mbarrier_arrive_expect_tx(shared.v_full(), C::v_bytes);
  load_tile<C::value_panels, C::block_n>(shared.v, &p.v, shared.v_full(), key, work.kv_head, work.batch,
                                         ptx::evict_first);
  ptx::griddepcontrol_wait();
  uint32_t i = 0;
  for (int g = 0; g < p.group; ++g) {
    const int head = work.kv_head * p.group + g;
    const int64_t rows = static_cast<int64_t>(work.batch * p.kv_heads * p.group + head) * p.padded_q;
    for (int m = work.first_m + work.tiles - 1; m >= work.first_m; --m) {
      const int row = m * C::block_m;
      uint32_t stage = stage_of<C::q_stages>(i);
      ptx::mbarrier_wait(shared.q_empty(stage), parity_of<C::q_stages>(i) ^ 1);
      const uint32_t q_full = shared.q_full(stage);
      ptx::mbarrier_arrive_expect_tx(q_full, C::q_bytes + C::row_bytes);
      load_tile<C::panels, C::block_m>(shared.q + stage * C::q_bytes, &p.q, q_full, row, head, work.batch,
                                       ptx::evict_last);
      ptx::bulk_load(shared.lse + stage * C::row_bytes, p.lse + rows + row, C::row_bytes, q_full);
      stage = stage_of<C::o_stages>(i);
      ptx::mbarrier_wait(shared.o_empty(stage), parity_of<C::o_stages>(i) ^ 1);
      const uint32_t o_full = shared.o_full(stage);
      ptx::mbarrier_arrive_expect_tx(o_full, C::d_out_bytes + C::row_bytes);
      load_tile<C::value_panels, C::block_m>(shared.d_out + stage * C::d_out_bytes, &p.d_out, o_full, row, head,
                                             work.batch, ptx::evict_last);
      ptx::bulk_load(shared.d_sum + stage * C::row_bytes, p.d_sum + rows + row, C::row_bytes, o_full);
      ++i;
    }
  }
}

// One thread's work for one warpgroup: it waits until the key tiles before this one are added, lets the warpgroup add,
// and passes the turn on when the additions are made.
template <typename C>
__device__ __forceinline__ void pass_turns(const Parameters& p, const Layout<C>& shared, const Work& work,
                                           int warpgroup) {
  const bool leads = threadIdx.x % 32 == 0;
  ptx::griddepcontrol_wait();
  constexpr int step = C::query_panels * C::panels;
  int m = work.tiles - 1;  // counted from the first
  uint32_t* turns = p.turns + sum_block<C>(p, work, work.first_m + m);
  for (int left = work.tiles * p.group; left > 0; --left) {
    const int slot = slot_of<C>(warpgroup, work.first_m + m);
    if (slot >= 0) {
      if (leads) {
        if constexpr (C::packed) {  // more, where offsets fall
          while (ptx::load_acquire(turns + slot) < static_cast<uint32_t>(work.n)) {
          }
        } else {
          while (ptx::load_acquire(turns + slot) != static_cast<uint32_t>(work.n)) {
          }
        }
        ptx::mbarrier_arrive(shared.turn(warpgroup));
      }
      ptx::bar_sync(added_barrier + warpgroup, 160);
      if (leads) {
        __threadfence();
        ptx::red_release_add(turns + slot, 1);
      }
    }
    turns -= step;
    if (--m < 0) {  // the next query head
      m += work.tiles;
      turns += p.padded_q / sum_rows * C::panels + work.tiles * step;
    }
  }
}

// Of a thread of a warpgroup; computed where they are needed: accumulators leave few registers. Masks, for the
// remainder of a signed number takes five instructions.
__device__ __forceinline__ int thread() { return ptx::fresh_tid_x() & 127; }
__device__ __forceinline__ int lane() { return ptx::fresh_tid_x() & 31; }

// The first of the keys, of the warpgroup's 64, whose scores are in this thread's registers; the second is 8 further.
__device__ __forceinline__ int own_key() {
  const int t = thread();
  return t / 32 * 16 + t % 32 / 4;
}

// Rows of lse or d_sum that a thread has read by ordinary loads it has fenced from TMA's next copy. One lane arrives
// for its warp where C::arrivals counts warps.
template <typename C>
__device__ __forceinline__ void release(uint32_t barrier) {
  if constexpr (C::arrivals == consumers) {
    ptx::mbarrier_arrive(barrier);
  } else {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(barrier);
  }
}

// What lse or d_sum has of the queries whose scores are in this thread's registers.
template <int BlockM>
using Rows = float2[BlockM / 8];

template <int BlockM>
__device__ __forceinline__ void load_rows(Rows<BlockM>& rows, uint32_t from) {
  const uint32_t row = from + lane() % 4 * 8;
#pragma unroll
  for (int j = 0; j < BlockM / 8; ++j) rows[j] = ptx::load_shared_pair(row + j * 32);
}

// Hidden keys get the weight 0, or its exponent, and so do keys and queries past the sequence: these were read as
// zeros, which an infinity of the other side would make NaN.
//
// Here and below Begin and End count steps of 16 queries. first_key: of the warpgroup's 64.
template <typename C, int Begin, int End>
__device__ __forceinline__ void hide(const Parameters& p, const Work& work, float (&s)[C::block_m / 2], int first_query,
                                     int first_key, float hidden) {
  constexpr int m = C::block_m;
  const int last_key = first_key + 63;
  const bool beyond = last_key >= seq_kv_of<C>(p, work) || first_query + m > seq_q_of<C>(p, work);
  bool some_hidden;
  if constexpr (C::windowed) {
    some_hidden =
        beyond || last_key >= first_query + high_of<C>(p, work) || first_key < first_query + m - 1 + low_of<C>(p, work);
  } else {
    some_hidden = beyond || (p.causal && last_key > first_query);
  }
  if (some_hidden) {
    const int query = first_query + lane() % 4 * 2;
    int first[2], end[2];  // of the queries that see either key, counted from `query`
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key + own_key() + half * 8;
      end[half] = seq_q_of<C>(p, work) - query;
      if constexpr (C::windowed) {
        first[half] = key - high_of<C>(p, work) + 1 - query;
        end[half] = min(end[half], key - low_of<C>(p, work) + 1 - query);
      } else {
        first[half] = p.causal ? key - query : 0;
      }
      if (key >= seq_kv_of<C>(p, work)) end[half] = 0;
    }
#pragma unroll
    for (int j = 2 * Begin; j < 2 * End; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = j * 8 + e % 2;
        if (at < first[e / 2] || at >= end[e / 2]) s[4 * j + e] = hidden;
      }
    }
  }
}

// Scores become weights.
template <typename C, int Begin, int End>
__device__ __forceinline__ void weigh(const Parameters& p, const Work& work, float (&s)[C::block_m / 2], uint32_t lse,
                                      int first_query, int first_key) {
  const uint32_t row = lse + lane() % 4 * 8;
#pragma unroll
  for (int j = 2 * Begin; j < 2 * End; ++j) {
    const float2 base = ptx::load_shared_pair(row + j * 32);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[4 * j + e] = ptx::ex2(fmaf(s[4 * j + e], p.scale_log2, e % 2 == 0 ? -base.x : -base.y));
  }
  hide<C, Begin, End>(p, work, s, first_query, first_key, 0.0f);
}

// The same with rows of lse that were loaded before. The mask comes before the exponentials, so that these and what
// follows are one stretch of code, in which the compiler is free to mix them.
template <typename C>
__device__ __forceinline__ void find_exponents(const Parameters& p, const Work& work, float (&s)[C::block_m / 2],
                                               const Rows<C::block_m>& lse, int first_query, int first_key) {
#pragma unroll
  for (int i = 0; i < C::block_m / 2; ++i) {
    const float2 base = lse[i / 4];
    s[i] = fmaf(s[i], p.scale_log2, i % 2 == 0 ? -base.x : -base.y);
  }
  hide<C, 0, C::block_m / 16>(p, work, s, first_query, first_key, -INFINITY);
}

template <typename T, int Begin, int End, int Steps>
__device__ __forceinline__ void pack(uint32_t (&fragments)[Steps][4], const float (&s)[8 * Steps]) {
#pragma unroll
  for (int i = Begin; i < End; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) fragments[i][e] = ptx::cvt_rn_x2<T>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
  }
}

// `sums`: the warpgroup's blocks of the tile of dQ, one for 64 columns.
template <typename C, int Columns>
__device__ __forceinline__ void add_dq(const Layout<C>& shared, int n, int warpgroup, const float (&dq)[Columns / 2],
                                       float* sums, uint32_t parity, bool first = true, bool last = true) {
  float* const to = sums + thread() * 4;
  const auto place = [&](int j) { return to + j / 8 * sum_floats + j % 8 * 512; };
  if (C::deterministic && first) ptx::mbarrier_wait(shared.turn(warpgroup), parity);
  if (C::deterministic && n == 0) {
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j) {
      *reinterpret_cast<float4*>(place(j)) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j) {
      ptx::red_add_v4(place(j), dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
  }
  if (C::deterministic && last) ptx::bar_arrive(added_barrier + warpgroup, 160);
}

// Where the walk over the queries is.
template <typename C>
struct Place {
  uint32_t i;      // tiles before this
  int m;           // the tile
  float* sums;     // its blocks of dQ, the first of the warpgroup's
  uint32_t added;  // of pairs of blocks: how often the warpgroup added before

  // first_block: the warpgroup's first of a tile's.
  __device__ __forceinline__ static Place begin(const Parameters& p, const Work& work, int first_block) {
    const int m = work.first_m + work.tiles - 1;
    return {0, m, p.dq_sums + (sum_block<C>(p, work, m) + first_block) * sum_floats, 0};
  }
  __device__ __forceinline__ void next(const Parameters& p, const Work& work) {
    ++i;
    constexpr int step = C::query_panels * C::panels * sum_floats;
    sums -= step;
    if (--m < work.first_m) {  // the next query head
      m += work.tiles;
      sums += (p.padded_q / sum_rows * C::panels) * sum_floats + work.tiles * step;
    }
  }
};

// `columns` of the sums, of the warpgroup's 64 keys. stride: of packed sequences alone; others are dense.
template <typename C, int Columns>
__device__ __forceinline__ void store(const Parameters& p, const Work& work, void* gradient, const HeadStrides& stride,
                                      const float (&sums)[Columns / 2], float factor, int columns, int first_key) {
  using T = typename C::T;
  const int64_t head = static_cast<int64_t>(work.batch) * p.kv_heads + work.kv_head;
  const int key = first_key + own_key(), column = lane() % 4 * 2;
  T* to = static_cast<T*>(gradient) + (head * p.seq_kv + key) * columns + column;
  const auto pitch = [&] {
    if constexpr (C::packed) {
      return stride.seq;
    } else {
      return columns;
    }
  };
  if constexpr (C::packed) {
    to = static_cast<T*>(gradient) + work.kv_head * stride.head + (work.span.first_kv + key) * stride.seq + column;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (key + half * 8 < seq_kv_of<C>(p, work)) {
      T* const row = to + half * 8 * pitch();
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) {
        const float low = sums[4 * j + half * 2] * factor, high = sums[4 * j + half * 2 + 1] * factor;
        if (columns % 2 == 0) {
          if (column + j * 8 < columns) *reinterpret_cast<uint32_t*>(row + j * 8) = ptx::cvt_rn_x2<T>(low, high);
        } else {
          if (column + j * 8 < columns) row[j * 8] = from_float<T>(low);
          if (column + j * 8 + 1 < columns) row[j * 8 + 1] = from_float<T>(high);
        }
      }
    }
  }
}

// Of a warpgroup's part of dQ, from registers to shared memory, where add_from_shared() finds it.
template <typename C>
__device__ __forceinline__ void store_dq(const Layout<C>& shared, int warpgroup, const float (&dq)[32]) {
  const uint32_t to = shared.dq + warpgroup * (sum_floats * 4) + thread() * 16;
  ptx::bar_sync(dq_free + warpgroup, 160);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    ptx::store_shared_vector(to + j * 2048, make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]));
  }
  ptx::fence_proxy_async_shared();
  ptx::bar_arrive(dq_stored + warpgroup, 160);
}

// A warp's work for one warpgroup: it adds the parts of dQ.
template <typename C>
__device__ __forceinline__ void add_from_shared(const Parameters& p, const Layout<C>& shared, const Work& work,
                                                int warpgroup) {
  ptx::griddepcontrol_wait();
  Place<C> at = Place<C>::begin(p, work, warpgroup);
  for (int left = work.tiles * p.group; left > 0; --left) {
    ptx::bar_arrive(dq_free + warpgroup, 160);
    ptx::bar_sync(dq_stored + warpgroup, 160);
    if (threadIdx.x % 32 == 0) {
      ptx::bulk_add(at.sums, shared.dq + warpgroup * (sum_floats * 4), sum_floats * 4);
      ptx::bulk_commit_group();
      ptx::bulk_wait_group_read<0>();
    }
    __syncwarp();
    at.next(p, work);
  }
  if (threadIdx.x % 32 == 0) ptx::bulk_wait_group<0>();
}

template <typename C>
__device__ __forceinline__ void init_barriers(const Layout<C>& shared) {
  ptx::mbarrier_init(shared.k_full(), 1);
  ptx::mbarrier_init(shared.v_full(), 1);
  for (int s = 0; s < C::q_stages; ++s) {
    ptx::mbarrier_init(shared.q_full(s), 1);
    ptx::mbarrier_init(shared.q_empty(s), C::arrivals);
  }
  for (int s = 0; s < C::o_stages; ++s) {
    ptx::mbarrier_init(shared.o_full(s), 1);
    ptx::mbarrier_init(shared.o_empty(s), C::arrivals);
  }
  for (int w = 0; w < 2; ++w) ptx::mbarrier_init(shared.turn(w), 1);
  if constexpr (C::packed) {
    ptx::mbarrier_init(shared.k_landed(), 1);
    ptx::mbarrier_init(shared.v_landed(), 1);
    for (int s = 0; s < 2; ++s) {
      ptx::mbarrier_init(shared.q_landed(s), 1);
      ptx::mbarrier_init(shared.o_landed(s), 1);
    }
  }
  if constexpr (C::cluster == 2) {
    for (int s = 0; s < 2; ++s) {
      ptx::mbarrier_init(shared.ds_full(s), 128);
      ptx::mbarrier_init(shared.ds_free(s), 8);
    }
  }
  ptx::fence_mbarrier_init();
}

// In sm90_packed.cuh.
template <typename C>
__device__ __forceinline__ void produce_packed(const Parameters& p, const Layout<C>& shared, const Work& work);
template <typename C>
__device__ __forceinline__ void zero_rests(const Parameters& p, const Layout<C>& shared, const Work& work);

// The first warpgroup: one thread loads, one warp for each of the others passes its turns on or adds its dQ. Of packed
// sequences the last warp makes rows of others zeros.
template <typename C>
__device__ __forceinline__ void help(const Parameters& p, const Layout<C>& shared, const Work& work) {
  const int warp = threadIdx.x / 32;
  if constexpr (C::packed) {
    if (warp == 0 && threadIdx.x == 0) produce_packed<C>(p, shared, work);
    if (warp == 3) zero_rests<C>(p, shared, work);
  } else {
    if (warp == 0 && threadIdx.x == 0) produce<C>(p, shared, work);
  }
  if constexpr (C::deterministic) {
    if (warp == 1 || warp == 2) pass_turns<C>(p, shared, work, warp - 1);
  } else if constexpr (C::dq_bytes > 0) {
    if (warp == 1 || warp == 2) add_from_shared<C>(p, shared, work, warp - 1);
  }
}

// Of the two that compute.
__device__ __forceinline__ int own_warpgroup() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128 - 1, 0); }

// C::compute() is what either of the two warpgroups does.
template <typename C>
__global__ void __launch_bounds__(C::threads, 1) kernel(const __grid_constant__ Parameters p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  const Layout<C> shared(memory);
  const Work work = work_of<C>(p, static_cast<int>(blockIdx.x));
  if constexpr (C::packed) {
    if (work.span.seq_kv == 0) {
      ptx::griddepcontrol_wait();  // what ends before the kernel before it does might let the one behind begin
      return;
    }
  }
  // Nobody writes to the other block of a pair before its barriers are made, or ends before it has read and arrived.
  const auto meet_other_block = [] {
    if constexpr (C::cluster > 1) {
      ptx::barrier_cluster_arrive_relaxed();
      ptx::barrier_cluster_wait();
    }
  };
  if (threadIdx.x == 0) init_barriers<C>(shared);
  __syncthreads();
  meet_other_block();
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<24>();
    help<C>(p, shared, work);
  } else {
    ptx::setmaxnreg_inc<240>();
    ptx::griddepcontrol_wait();
    C::compute(p, shared, work);
  }
  __syncwarp();
  meet_other_block();
#endif
}

template <typename C>
Instance instance(GradientType type, const char* name) {
  static_assert(shared_bytes_of<C>() <= 232448, "more shared memory than a block can have");
  return {type,       C::head_dim,          C::value_dim, C::block_m, C::block_n,
          C::cluster, C::deterministic,     C::windowed,  C::packed,  reinterpret_cast<const void*>(&kernel<C>),
          C::threads, shared_bytes_of<C>(), name};
}

}  // namespace cuda_llm_ops::cuda::backward
