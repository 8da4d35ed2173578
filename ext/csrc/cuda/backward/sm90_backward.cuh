// Attention's backward on Hopper. A thread block owns 128 keys of a key head, holds their dK and dV in registers, and
// walks over the queries that see them, of all query heads that share the key head, from the last tile to the first.
//
// Two consumer warpgroups of 64 keys each. Scores are computed transposed, keys by queries: then P^T and dS^T are in
// registers as the tensor cores want their left operand, and only dS goes through shared memory, once, for dQ.
//
//   S^T  = K Q^T      dP^T = V dO^T      dV += P^T dO      dQ = dS K      dK += dS^T Q
//
// Order of a warpgroup's products: S dP dV dQ dK. The exponentials run under dP; dS is computed and stored under dV; dQ is
// added to memory under dK. At head_dim 64 a tile has 128 queries: half of them go as far as dS, and their dV and dK are
// begun, before the exponentials of the other half, which are too many for dP to hide.
//
// dQ goes from registers to float32 sums in memory (sm90_backward.h). Deterministic: thread blocks add to a tile of dQ in the
// order of their keys. They start in that order and all walk downwards, so that each comes to a tile after the one before;
// two helper warps wait and pass the turn on.
//
// Shared memory, tiles in panels of 64 columns (128 bytes, TMA's swizzle): K, V [panel][128 rows], Q, dO
// [stage][panel][block_m rows], dS [2][panel of 64 queries][128 keys].
#pragma once

#include <cstdint>

#include "../numeric.cuh"
#include "../ptx/atomic.cuh"
#include "../ptx/barrier.cuh"
#include "../ptx/cvt.cuh"
#include "../ptx/ex2.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/red.cuh"
#include "../ptx/setmaxnreg.cuh"
#include "../ptx/shared_pair.cuh"
#include "../ptx/special_registers.cuh"
#include "../ptx/stmatrix.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_backward.h"

namespace cuda_llm_ops::cuda::backward {

// How dQ is added, and which masks there are.
enum class Way { free_order, in_turn, window };

template <typename T_, int HeadDim, int BlockM, Way Is>
struct Config {
  using T = T_;
  static constexpr int head_dim = HeadDim, block_m = BlockM, stages = 2;
  static constexpr bool deterministic = Is == Way::in_turn, windowed = Is == Way::window;
  static constexpr bool halves = BlockM == 128;  // of a tile's queries, one after the other
  static constexpr int panels = HeadDim / 64, query_panels = BlockM / 64;
  static constexpr int threads = 384;
  static constexpr int kv_bytes = block_n * HeadDim * 2, q_bytes = BlockM * HeadDim * 2;
  static constexpr int ds_bytes = block_n * BlockM * 2, row_bytes = BlockM * 4;
  static constexpr int barriers = 2 + 4 * stages + 2;
  static constexpr int shared_bytes =
      1024 + 2 * kv_bytes + 2 * stages * (q_bytes + row_bytes) + 2 * ds_bytes + barriers * 8;
  static_assert(panels * query_panels == 2, "each warpgroup computes one 64 x 64 block of dQ");
  static_assert(shared_bytes <= 232448, "more shared memory than a block can have");
};

// Named barriers 1.. (0 is __syncthreads).
constexpr uint32_t ds_barrier = 1;     // both warpgroups have stored dS
constexpr uint32_t added_barrier = 2;  // and the next, of one warpgroup: its part of dQ is added

template <typename C>
struct Layout {
  uint32_t k, v, q, d_out, ds, lse, d_sum, barriers;

  __device__ __forceinline__ explicit Layout(const void* memory) {
    k = (ptx::shared_address(memory) + 1023u) & ~1023u;
    v = k + C::kv_bytes;
    q = v + C::kv_bytes;
    d_out = q + C::stages * C::q_bytes;
    ds = d_out + C::stages * C::q_bytes;
    lse = ds + 2 * C::ds_bytes;
    d_sum = lse + C::stages * C::row_bytes;
    barriers = d_sum + C::stages * C::row_bytes;
  }
  __device__ __forceinline__ uint32_t k_full() const { return barriers; }
  __device__ __forceinline__ uint32_t v_full() const { return barriers + 8; }
  __device__ __forceinline__ uint32_t q_full(uint32_t s) const { return barriers + 16 + s * 8; }
  __device__ __forceinline__ uint32_t q_empty(uint32_t s) const { return q_full(C::stages + s); }
  __device__ __forceinline__ uint32_t o_full(uint32_t s) const { return q_full(2 * C::stages + s); }
  __device__ __forceinline__ uint32_t o_empty(uint32_t s) const { return o_full(C::stages + s); }
  __device__ __forceinline__ uint32_t turn(int warpgroup) const { return o_full(2 * C::stages + warpgroup); }
};

// The buffer of the block's tile i, and the parity of its barriers.
template <typename C>
__device__ __forceinline__ uint32_t stage_of(uint32_t i) {
  return i % C::stages;
}
template <typename C>
__device__ __forceinline__ uint32_t parity_of(uint32_t i) {
  return i / C::stages & 1;
}

// What a block has to do.
struct Work {
  int n, kv_head, batch;  // its keys
  int first_m, tiles;     // its query tiles of one head: first_m .. first_m + tiles - 1
};

template <typename C>
__device__ __forceinline__ Work work_of(const Parameters& p) {
  const int index = static_cast<int>(blockIdx.x);
  const int per_section = p.section * p.n_tiles, section = index / per_section, within = index - section * per_section;
  const int heads = min(p.section, p.batch_heads - section * p.section);
  const int n = within / heads, head = section * p.section + within % heads;
  if constexpr (C::windowed) {
    const int first_q = max(0, n * block_n - p.high + 1);
    const int end = min(p.seq_q, min((n + 1) * block_n, p.seq_kv) - p.low), first_m = first_q / C::block_m;
    const int tiles = end > first_q ? (end - 1) / C::block_m - first_m + 1 : 0;
    return {n, head % p.kv_heads, head / p.kv_heads, first_m, tiles};
  }
  const int first = p.causal ? n * block_n / C::block_m : 0;
  return {n, head % p.kv_heads, head / p.kv_heads, first, max(p.m_tiles - first, 0)};
}

// One thread's work: TMA.
template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const Layout<C>& shared, const Work& work) {
  const auto load = [&](uint32_t to, const CUtensorMap* map, uint32_t barrier, int rows, int row, int head,
                        uint64_t policy) {
#pragma unroll
    for (int panel = 0; panel < C::panels; ++panel) {
      ptx::tma_load_4d(to + panel * rows * 128, map, barrier, panel * 64, row, head, work.batch, policy);
    }
  };
  ptx::mbarrier_arrive_expect_tx(shared.k_full(), C::kv_bytes);
  load(shared.k, &p.k, shared.k_full(), block_n, work.n * block_n, work.kv_head, ptx::evict_first);
  ptx::mbarrier_arrive_expect_tx(shared.v_full(), C::kv_bytes);
  load(shared.v, &p.v, shared.v_full(), block_n, work.n * block_n, work.kv_head, ptx::evict_first);
  ptx::griddepcontrol_wait();
  uint32_t i = 0;
  for (int g = 0; g < p.group; ++g) {
    const int head = work.kv_head * p.group + g;
    const int64_t rows = static_cast<int64_t>(work.batch * p.kv_heads * p.group + head) * p.padded_q;
    for (int m = work.first_m + work.tiles - 1; m >= work.first_m; --m) {
      const int row = m * C::block_m;
      const uint32_t stage = stage_of<C>(i), free = parity_of<C>(i) ^ 1;
      ptx::mbarrier_wait(shared.q_empty(stage), free);
      const uint32_t q_full = shared.q_full(stage);
      ptx::mbarrier_arrive_expect_tx(q_full, C::q_bytes + C::row_bytes);
      load(shared.q + stage * C::q_bytes, &p.q, q_full, C::block_m, row, head, ptx::evict_last);
      ptx::bulk_load(shared.lse + stage * C::row_bytes, p.lse + rows + row, C::row_bytes, q_full);
      ptx::mbarrier_wait(shared.o_empty(stage), free);
      const uint32_t o_full = shared.o_full(stage);
      ptx::mbarrier_arrive_expect_tx(o_full, C::q_bytes + C::row_bytes);
      load(shared.d_out + stage * C::q_bytes, &p.d_out, o_full, C::block_m, row, head, ptx::evict_last);
      ptx::bulk_load(shared.d_sum + stage * C::row_bytes, p.d_sum + rows + row, C::row_bytes, o_full);
      ++i;
    }
  }
}

// Which block of dQ's sums a warpgroup has of a tile.
template <typename C>
__device__ __forceinline__ int64_t sum_block(const Parameters& p, int batch_head, int m, int warpgroup) {
  return (static_cast<int64_t>(batch_head) * (p.padded_q / sum_rows) + m * C::query_panels) * C::panels + warpgroup;
}

// One thread's work for one warpgroup: it waits until the key tiles before this one are added, lets the warpgroup add, and
// passes the turn on when the additions are made.
template <typename C>
__device__ __forceinline__ void pass_turns(const Parameters& p, const Layout<C>& shared, const Work& work,
                                           int warpgroup) {
  const bool leads = threadIdx.x % 32 == 0;
  ptx::griddepcontrol_wait();
  for (int g = 0; g < p.group; ++g) {
    const int batch_head = (work.batch * p.kv_heads + work.kv_head) * p.group + g;
    for (int m = work.first_m + work.tiles - 1; m >= work.first_m; --m) {
      uint32_t* turn = p.turns + sum_block<C>(p, batch_head, m, warpgroup);
      if (leads) {
        while (ptx::load_acquire(turn) != static_cast<uint32_t>(work.n)) {
        }
        ptx::mbarrier_arrive(shared.turn(warpgroup));
      }
      ptx::bar_sync(added_barrier + warpgroup, 160);
      if (leads) {
        __threadfence();
        ptx::red_release_add(turn, 1);
      }
    }
  }
}

template <typename C>
struct Consumer {
  using T = typename C::T;
  static constexpr int d = C::head_dim, m = C::block_m, steps = m / 16;
  using Fragments = uint32_t[m / 16][4];

  const Parameters& p;
  const Layout<C>& shared;
  const Work& work;
  const int warpgroup;
  float dk[d / 2], dv[d / 2];

  __device__ __forceinline__ Consumer(const Parameters& parameters, const Layout<C>& layout, const Work& its_work)
      : p(parameters),
        shared(layout),
        work(its_work),
        warpgroup(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128 - 1, 0)) {}

  // Computed where they are needed: accumulators leave few registers.
  static __device__ __forceinline__ int thread() { return ptx::fresh_tid_x() % 128; }
  static __device__ __forceinline__ int lane() { return ptx::fresh_tid_x() % 32; }

  // scores = own 64 rows of `left` (K or V) times the rows of `right` (Q or dO), summed over head_dim; one group.
  __device__ __forceinline__ void issue_scores(float (&scores)[m / 2], uint32_t left, uint32_t right) const {
    const uint64_t a = ptx::k_major_descriptor(left + warpgroup * 8192), b = ptx::k_major_descriptor(right);
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < d / 16; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      ptx::Wgmma<m>::template ss<T, 0, 0>(scores, a + panel * (block_n * 8) + within, b + panel * (m * 8) + within,
                                          i != 0);
    }
    ptx::wgmma_commit_group();
  }

  // sums += fragments (keys by queries) times the rows of `right` (queries by head_dim); one group.
  template <int Begin, int End>
  __device__ __forceinline__ void issue_gradient(float (&sums)[d / 2], Fragments& fragments, uint32_t right) const {
    const uint64_t b = ptx::mn_major_descriptor(right, m);
    ptx::wgmma_fence_operand(sums);
#pragma unroll
    for (int i = Begin; i < End; ++i) ptx::wgmma_fence_operand(fragments[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = Begin; i < End; ++i) ptx::Wgmma<d>::template rs<T, 1>(sums, fragments[i], b + i * 128, 1);
    ptx::wgmma_commit_group();
  }

  // dq = dS K: 64 queries by 64 columns; one group.
  __device__ __forceinline__ void issue_dq(float (&dq)[32], uint32_t ds) const {
    const uint64_t a = ptx::mn_major_descriptor(ds + (C::query_panels == 2 ? warpgroup * 16384 : 0), block_n);
    const uint64_t b = ptx::mn_major_descriptor(shared.k + (C::panels == 2 ? warpgroup * 16384 : 0), block_n);
    ptx::wgmma_fence_operand(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < block_n / 16; ++i) ptx::Wgmma<64>::template ss<T, 1, 1>(dq, a + i * 128, b + i * 128, i != 0);
    ptx::wgmma_commit_group();
  }

  // Every thread for itself: each has read rows of lse and d_sum there by ordinary loads.
  static __device__ __forceinline__ void release(uint32_t barrier) { ptx::mbarrier_arrive(barrier); }

  // The first of the keys whose scores are in this thread's registers; the second is 8 further.
  __device__ __forceinline__ int first_key() const {
    const int t = thread();
    return work.n * block_n + warpgroup * 64 + t / 32 * 16 + t % 32 / 4;
  }

  // Here and below Begin and End count steps of 16 queries.
  //
  // Scores become weights. Hidden keys get 0, and so do keys and queries past the sequence: these were read as zeros,
  // which an infinity of the other side would make NaN.
  template <int Begin, int End>
  __device__ __forceinline__ void weigh(float (&s)[m / 2], uint32_t lse, int first_query) const {
    const uint32_t row = lse + lane() % 4 * 8;
#pragma unroll
    for (int j = 2 * Begin; j < 2 * End; ++j) {
      const float2 base = ptx::load_shared_pair(row + j * 32);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[4 * j + e] = ptx::ex2(fmaf(s[4 * j + e], p.scale_log2, e % 2 == 0 ? -base.x : -base.y));
    }
    const int last_key = work.n * block_n + warpgroup * 64 + 63;
    if constexpr (C::windowed) {
      if (last_key >= p.seq_kv || first_query + m > p.seq_q || last_key >= first_query + p.high ||
          last_key - 63 < first_query + m - 1 + p.low) {
        const int key = first_key(), query = first_query + lane() % 4 * 2;
#pragma unroll
        for (int j = 2 * Begin; j < 2 * End; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int its_key = key + e / 2 * 8, its_query = query + j * 8 + e % 2;
            if (its_key >= min(p.seq_kv, its_query + p.high) || its_key < its_query + p.low || its_query >= p.seq_q)
              s[4 * j + e] = 0.0f;
          }
        }
      }
    } else if (last_key >= p.seq_kv || first_query + m > p.seq_q || (p.causal && last_key > first_query)) {
      const int key = first_key(), query = first_query + lane() % 4 * 2;
#pragma unroll
      for (int j = 2 * Begin; j < 2 * End; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int its_key = key + e / 2 * 8, its_query = query + j * 8 + e % 2;
          if (its_key >= p.seq_kv || its_query >= p.seq_q || (p.causal && its_key > its_query)) s[4 * j + e] = 0.0f;
        }
      }
    }
  }

  template <int Begin, int End>
  static __device__ __forceinline__ void pack(Fragments& fragments, const float (&s)[m / 2]) {
#pragma unroll
    for (int i = Begin; i < End; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) fragments[i][e] = ptx::cvt_rn_x2<T>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
    }
  }

  // dS = P (dP - d_sum), into fragments and shared memory.
  template <int Begin, int End>
  __device__ __forceinline__ void differentiate(const float (&weights)[m / 2], float (&dp)[m / 2], Fragments& fragments,
                                                uint32_t d_sum, uint32_t ds) const {
    const int t = thread();
    const uint32_t row = d_sum + t % 4 * 8;
    const int key_row = warpgroup * 64 + t / 32 * 16 + t % 16;
    const uint32_t to = ds + key_row * 128;
#pragma unroll
    for (int i = Begin; i < End; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = 2 * i + half;
        const float2 mean = ptx::load_shared_pair(row + j * 32);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          dp[4 * j + e] = weights[4 * j + e] * (dp[4 * j + e] - (e % 2 == 0 ? mean.x : mean.y));
        }
        fragments[i][half * 2] = ptx::cvt_rn_x2<T>(dp[4 * j], dp[4 * j + 1]);
        fragments[i][half * 2 + 1] = ptx::cvt_rn_x2<T>(dp[4 * j + 2], dp[4 * j + 3]);
      }
      const int chunk = 2 * i + t % 32 / 16;  // of 8 queries
      ptx::stmatrix_x4(to + chunk / 8 * 16384 + ((chunk % 8) ^ (key_row % 8)) * 16, fragments[i][0], fragments[i][1],
                       fragments[i][2], fragments[i][3]);
    }
  }

  // `sums`: this warpgroup's block of the tile of dQ.
  __device__ __forceinline__ void add_dq(const float (&dq)[32], float* sums, uint32_t parity) const {
    float* const to = sums + thread() * 4;
    if constexpr (C::deterministic) ptx::mbarrier_wait(shared.turn(warpgroup), parity);
    if (C::deterministic && work.n == 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        *reinterpret_cast<float4*>(to + j * 512) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) ptx::red_add_v4(to + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
    if constexpr (C::deterministic) ptx::bar_arrive(added_barrier + warpgroup, 160);
  }

  // Where the walk over the queries is.
  struct Place {
    uint32_t i;   // tiles before this
    int m;        // the tile
    float* sums;  // its block of dQ
  };

  // One tile of queries.
  __device__ __forceinline__ void step(Place& at) {
    const uint32_t stage = stage_of<C>(at.i), parity = parity_of<C>(at.i);
    const uint32_t q = shared.q + stage * C::q_bytes, d_out = shared.d_out + stage * C::q_bytes;
    const uint32_t ds_at = shared.ds + stage * C::ds_bytes;
    const uint32_t lse = shared.lse + stage * C::row_bytes, d_sum = shared.d_sum + stage * C::row_bytes;
    constexpr int half = steps / 2;
    Fragments weights, ds;
    float dq[32];
    {
      float s[m / 2], dp[m / 2];
      ptx::mbarrier_wait(shared.q_full(stage), parity);
      issue_scores(s, shared.k, q);
      ptx::mbarrier_wait(shared.o_full(stage), parity);
      issue_scores(dp, shared.v, d_out);
      ptx::wgmma_wait_group<1>();
      ptx::wgmma_fence_operand(s);
      if constexpr (!C::halves) {
        weigh<0, steps>(s, lse, at.m * m);
        pack<0, steps>(weights, s);
        ptx::wgmma_wait_group<0>();
        ptx::wgmma_fence_operand(dp);
        issue_gradient<0, steps>(dv, weights, d_out);
        differentiate<0, steps>(s, dp, ds, d_sum, ds_at);
      } else {
        weigh<0, half>(s, lse, at.m * m);
        ptx::wgmma_wait_group<0>();
        ptx::wgmma_fence_operand(dp);
        pack<0, half>(weights, s);
        differentiate<0, half>(s, dp, ds, d_sum, ds_at);
        issue_gradient<0, half>(dv, weights, d_out);
        issue_gradient<0, half>(dk, ds, q);
        weigh<half, steps>(s, lse, at.m * m);
        pack<half, steps>(weights, s);
        differentiate<half, steps>(s, dp, ds, d_sum, ds_at);
      }
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(ds_barrier, 256);
    issue_dq(dq, ds_at);
    if constexpr (!C::halves) {
      issue_gradient<0, steps>(dk, ds, q);
      ptx::wgmma_wait_group<1>();
      release(shared.o_empty(stage));
    } else {
      issue_gradient<half, steps>(dv, weights, d_out);
      issue_gradient<half, steps>(dk, ds, q);
      ptx::wgmma_wait_group<2>();
    }
    ptx::wgmma_fence_operand(dq);
    add_dq(dq, at.sums, stage);
    ++at.i;
    constexpr int step = C::query_panels * C::panels * sum_floats;
    at.sums -= step;
    if (--at.m < work.first_m) {  // the next query head
      at.m += work.tiles;
      at.sums += (p.padded_q / sum_rows * C::panels) * sum_floats + work.tiles * step;
    }
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(dk);
    ptx::wgmma_fence_operand(dv);
    if constexpr (C::halves) release(shared.o_empty(stage));
    release(shared.q_empty(stage));
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < d / 2; ++i) dk[i] = dv[i] = 0.0f;
    Place at{};
    at.m = work.first_m + work.tiles - 1;
    at.sums =
        p.dq_sums + sum_block<C>(p, (work.batch * p.kv_heads + work.kv_head) * p.group, at.m, warpgroup) * sum_floats;
    ptx::mbarrier_wait(shared.k_full(), 0);
    ptx::mbarrier_wait(shared.v_full(), 0);
    const int count = work.tiles * p.group;
    for (int i = 0; i < count; ++i) step(at);
    store(p.dv, dv, 1.0f, p.value_dim);
    store(p.dk, dk, p.scale, p.head_dim);
  }

  // `columns` of the sums.
  __device__ __forceinline__ void store(void* gradient, const float (&sums)[d / 2], float factor, int columns) const {
    const int64_t head = static_cast<int64_t>(work.batch) * p.kv_heads + work.kv_head;
    const int key = first_key(), column = lane() % 4 * 2;
    T* const to = static_cast<T*>(gradient) + (head * p.seq_kv + key) * columns + column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (key + half * 8 < p.seq_kv) {
        T* const row = to + half * 8 * columns;
#pragma unroll
        for (int j = 0; j < d / 8; ++j) {
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
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) kernel(const __grid_constant__ Parameters p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  const Layout<C> shared(memory);
  const Work work = work_of<C>(p);
  if (threadIdx.x == 0) {
    constexpr int consumers = 256;
    ptx::mbarrier_init(shared.k_full(), 1);
    ptx::mbarrier_init(shared.v_full(), 1);
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.q_full(s), 1);
      ptx::mbarrier_init(shared.q_empty(s), consumers);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.o_full(s), 1);
      ptx::mbarrier_init(shared.o_empty(s), consumers);
    }
    for (int w = 0; w < 2; ++w) ptx::mbarrier_init(shared.turn(w), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<24>();
    const int warp = threadIdx.x / 32;
    if (warp == 0 && threadIdx.x == 0) produce<C>(p, shared, work);
    if constexpr (C::deterministic) {
      if (warp == 1 || warp == 2) pass_turns<C>(p, shared, work, warp - 1);
    }
  } else {
    ptx::setmaxnreg_inc<240>();
    ptx::griddepcontrol_wait();
    Consumer<C>(p, shared, work).run();
  }
#endif
}

template <typename C>
Instance instance(GradientType type, const char* name) {
  return {
      type,       C::head_dim,     C::block_m, C::deterministic, C::windowed, reinterpret_cast<const void*>(&kernel<C>),
      C::threads, C::shared_bytes, name};
}

}  // namespace cuda_llm_ops::cuda::backward
