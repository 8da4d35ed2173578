// Attention's backward on Hopper for head_dim above 128. A pair of thread blocks, a cluster, owns 128 keys of a key head,
// each block 64 of them, and walks over the queries that see them, of all query heads that share the key head, from the
// last tile of 64 to the first.
//
// dK and dV of 64 keys and 256 columns fill the registers of two warpgroups, so each has one of them, and the products that
// lead to it. The weights, 64 by 64 in float32, go through shared memory from one to the other, each thread's to the same
// thread's. The blocks give each other a copy of dS, so that each sums dQ over all 128 keys, for half of the columns: a
// block alone would add twice as much to memory.
//
//   the first warpgroup     S^T = K Q^T     P            dV += P^T dO    dQ = dS K, 64 columns
//   the second              dP^T = V dO^T   dS of P, dP  dK += dS^T Q    dQ = dS K, 64 others
//
// Either issues the scores of the next tile before dQ of this one, which waits for the other block.
//
// dQ and the turns are as in sm90_backward.cuh.
//
// Shared memory, tiles in panels of 64 columns (128 bytes, TMA's swizzle): K, V [panel][64 rows], two panels of the other
// block's K, Q, dO [stage][panel][64 rows], dS [2][128 keys][64 queries], the weights [group of 8 queries][thread][4].
#pragma once

#include "../ptx/ldmatrix.cuh"
#include "../ptx/shared_vectors.cuh"
#include "sm90_walk.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename C>
struct WideConsumer;

template <typename T_, int HeadDim, int ValueDim, Way Is>
struct WideConfig {
  using T = T_;
  static constexpr int head_dim = HeadDim, value_dim = ValueDim, block_m = 64, block_n = 64, q_stages = 2;
  static constexpr int o_stages = HeadDim + ValueDim > 384 ? 1 : 2, cluster = 2;
  static constexpr bool left_in_registers = HeadDim + ValueDim <= 320;  // K and V, for scores
  static constexpr int walk_n = 128, other_k_bytes = 2 * 8192;
  static constexpr bool deterministic = Is == Way::in_turn, windowed = Is == Way::window, packed = false;
  static constexpr int panels = HeadDim / 64, value_panels = ValueDim / 64, query_panels = 1;
  static constexpr int threads = 384;
  static constexpr int k_bytes = block_n * HeadDim * 2, v_bytes = block_n * ValueDim * 2;
  static constexpr int q_bytes = k_bytes, d_out_bytes = v_bytes;
  static constexpr int ds_buffers = 2, ds_bytes = walk_n * block_m * 2, weight_bytes = block_n * block_m * 4;
  static constexpr int row_bytes = block_m * 4, arrivals = consumers, dq_bytes = 0;

  static __device__ __forceinline__ void compute(const Parameters& p, const Layout<WideConfig>& shared,
                                                 const Work& work) {
    const WideConsumer<WideConfig> consumer{p, shared, work};
    if (own_warpgroup() == 0) {
      consumer.run_first();
    } else {
      consumer.run_second();
    }
  }
};

constexpr uint32_t weights_barrier = 4;  // the weights are stored
constexpr uint32_t half_barrier = 5;     // the second warpgroup has stored dS

// What both warpgroups do: 64 keys by 64 queries.
template <typename C>
struct WideConsumer {
  using T = typename C::T;
  static constexpr int m = C::block_m, steps = m / 16;
  using Fragments = uint32_t[steps][4];
  using Scores = float[m / 2];

  const Parameters& p;
  const Layout<C>& shared;
  const Work& work;

  // Of the block in its pair; read where it is needed, as accumulators leave few registers.
  static __device__ __forceinline__ int own_rank() { return static_cast<int>(ptx::cluster_ctarank()); }
  __device__ __forceinline__ int first_key() const { return first_key_of<C>(work); }
  // Computed once more, as its head is needed before and after the walk alone.
  __device__ __forceinline__ Work work_again() const {
    return work_of<C>(p, ptx::opaque(static_cast<int>(blockIdx.x)));
  }
  __device__ __forceinline__ int count() const { return work.tiles * p.group; }
  __device__ __forceinline__ uint32_t q(uint32_t stage) const { return shared.q + stage * C::q_bytes; }
  __device__ __forceinline__ uint32_t d_out(uint32_t stage) const { return shared.d_out + stage * C::d_out_bytes; }

  __device__ __forceinline__ uint32_t own_ds(uint32_t buffer) const {
    return shared.ds + buffer * C::ds_bytes + own_rank() * 8192;
  }

  // K or V as left operand, in registers where dK and dV leave room: the tensor cores then read half as much for
  // scores.
  template <int Columns>
  struct Left {
    uint32_t fragments[C::left_in_registers ? Columns / 16 : 1][4];
    uint32_t at;

    __device__ __forceinline__ explicit Left(uint32_t shared) : at(shared) {
      if constexpr (C::left_in_registers) {
        const int t = thread(), row = t / 32 * 16 + t % 16;
#pragma unroll
        for (int i = 0; i < Columns / 16; ++i) {
          const int chunk = i % 4 * 2 + t % 32 / 16;
          ptx::ldmatrix_x4(fragments[i], shared + i / 4 * 8192 + row * 128 + (chunk ^ (row % 8)) * 16);
        }
      }
    }
  };

  // scores = rows of `left` (K or V) times rows of `right` (Q or dO), summed over `Columns`; one group.
  template <int Columns>
  __device__ __forceinline__ void issue_scores(Scores& scores, const Left<Columns>& left, uint32_t right) const {
    const uint64_t a = ptx::k_major_descriptor(left.at), b = ptx::k_major_descriptor(right);
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Columns / 16; ++i) {
      const int at = i / 4 * (64 * 8) + i % 4 * 2;
      if constexpr (C::left_in_registers) {
        ptx::Wgmma<m>::template rs<T, 0>(scores, left.fragments[i], b + at, i != 0);
      } else {
        ptx::Wgmma<m>::template ss<T, 0, 0>(scores, a + at, b + at, i != 0);
      }
    }
    ptx::wgmma_commit_group();
  }

  // sums += fragments (keys by queries) times the rows of `right` (queries by columns); one group.
  template <int Columns>
  __device__ __forceinline__ void issue_gradient(float (&sums)[Columns / 2], Fragments& fragments,
                                                 uint32_t right) const {
    const uint64_t b = ptx::mn_major_descriptor(right, m);
    ptx::wgmma_fence_operand(sums);
#pragma unroll
    for (int i = 0; i < steps; ++i) ptx::wgmma_fence_operand(fragments[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; ++i) ptx::Wgmma<Columns>::template rs<T, 1>(sums, fragments[i], b + i * 128, 1);
    ptx::wgmma_commit_group();
  }

  // dq = dS K: 64 queries by 64 columns, of all 128 keys; one group.
  __device__ __forceinline__ void issue_dq(float (&dq)[32], uint32_t buffer, int panel) const {
    const int rank = own_rank();
    const uint64_t a = ptx::mn_major_descriptor(shared.ds + buffer * C::ds_bytes, C::block_n);
    const uint32_t own = shared.k + panel * 8192;
    const uint32_t other = shared.other_k + (panel - first_panel<C>(rank)) * 8192;
    const uint64_t b[2] = {ptx::mn_major_descriptor(rank == 0 ? own : other, C::block_n),
                           ptx::mn_major_descriptor(rank == 0 ? other : own, C::block_n)};
    ptx::wgmma_fence_operand(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::walk_n / 16; ++i)
      ptx::Wgmma<64>::template ss<T, 1, 1>(dq, a + i * 128, b[i / 4] + i % 4 * 128, i != 0);
    ptx::wgmma_commit_group();
  }

  // A warpgroup's part of dQ of a tile, when both halves of dS are there.
  template <int Warpgroup>
  __device__ __forceinline__ void finish_dq(Place<C>& at) const {
    const uint32_t buffer = at.i % 2;
    float dq[32];
    ptx::mbarrier_wait(shared.ds_full(buffer), at.i / 2 & 1);
    const auto release_ds = [&] {
      if (lane() == 0) ptx::mbarrier_arrive_cluster(shared.ds_free(buffer), own_rank() ^ 1);
    };
    if constexpr (C::panels == 4) {
      issue_dq(dq, buffer, first_panel<C>(own_rank()) + Warpgroup);
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(dq);
      release_ds();
      add_dq<C, 64>(shared, work.n, Warpgroup, dq, at.sums, buffer);
    } else {
      const int panel = panel_of<C>(own_rank(), Warpgroup, at.m);
      if (panel >= 0) issue_dq(dq, buffer, panel);
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(dq);
      release_ds();
      if (panel >= 0) add_dq<C, 64>(shared, work.n, Warpgroup, dq, at.sums + panel * sum_floats, at.added++ & 1);
    }
  }

  // dS = P (dP - d_sum), into fragments and shared memory.
  __device__ __forceinline__ void differentiate(Scores& dp, Fragments& fragments, uint32_t d_sum, uint32_t ds) const {
    const int t = thread();
    const uint32_t row = d_sum + t % 4 * 8;
    const int key_row = t / 32 * 16 + t % 16;
    const uint32_t to = ds + key_row * 128, from = shared.weights + t * 16;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = 2 * i + half;
        const float2 mean = ptx::load_shared_pair(row + j * 32);
        const uint4 weights = ptx::load_shared_vector(from + j * 2048);
        dp[4 * j] = __uint_as_float(weights.x) * (dp[4 * j] - mean.x);
        dp[4 * j + 1] = __uint_as_float(weights.y) * (dp[4 * j + 1] - mean.y);
        dp[4 * j + 2] = __uint_as_float(weights.z) * (dp[4 * j + 2] - mean.x);
        dp[4 * j + 3] = __uint_as_float(weights.w) * (dp[4 * j + 3] - mean.y);
        fragments[i][half * 2] = ptx::cvt_rn_x2<T>(dp[4 * j], dp[4 * j + 1]);
        fragments[i][half * 2 + 1] = ptx::cvt_rn_x2<T>(dp[4 * j + 2], dp[4 * j + 3]);
      }
      const int chunk = 2 * i + t % 32 / 16;  // of 8 queries
      ptx::stmatrix_x4(to + (chunk ^ (key_row % 8)) * 16, fragments[i][0], fragments[i][1], fragments[i][2],
                       fragments[i][3]);
    }
  }

  // For the other warpgroup, which has read those of the tile before.
  __device__ __forceinline__ void give(const Scores& weights) const {
    const uint32_t to = shared.weights + thread() * 16;
#pragma unroll
    for (int j = 0; j < m / 8; ++j) {
      ptx::store_shared_vector(to + j * 2048,
                               make_uint4(__float_as_uint(weights[4 * j]), __float_as_uint(weights[4 * j + 1]),
                                          __float_as_uint(weights[4 * j + 2]), __float_as_uint(weights[4 * j + 3])));
    }
  }

  // A tile of the first warpgroup: s has its scores, and then those of the next.
  template <bool Last>
  __device__ __forceinline__ void first_step(Place<C>& at, const Left<C::head_dim>& left, Scores& s,
                                             float (&dv)[C::value_dim / 2]) const {
    const uint32_t stage = stage_of<C::q_stages>(at.i), o_stage = stage_of<C::o_stages>(at.i);
    Fragments weights;
    weigh<C, 0, steps>(p, work, s, shared.lse + stage * C::row_bytes, at.m * m, first_key());
    give(s);
    ptx::bar_arrive(weights_barrier, consumers);
    pack<T, 0, steps>(weights, s);
    ptx::mbarrier_wait(shared.o_full(o_stage), parity_of<C::o_stages>(at.i));
    issue_gradient<C::value_dim>(dv, weights, d_out(o_stage));
    if constexpr (!Last) {
      const uint32_t next = at.i + 1;
      ptx::mbarrier_wait(shared.q_full(stage_of<C::q_stages>(next)), parity_of<C::q_stages>(next));
      issue_scores<C::head_dim>(s, left, q(stage_of<C::q_stages>(next)));
      // Of lse, while the products run; the other warpgroup gives the stage back later still.
      ptx::fence_proxy_async_shared();
      release<C>(shared.q_empty(stage));
      ptx::wgmma_wait_group<1>();
    } else {
      ptx::wgmma_wait_group<0>();
    }
    ptx::wgmma_fence_operand(dv);
    release<C>(shared.o_empty(o_stage));
    finish_dq<0>(at);
    if constexpr (!Last) ptx::wgmma_fence_operand(s);
    at.next(p, work);
  }

  __device__ __forceinline__ void run_first() const {
    float dv[C::value_dim / 2];
#pragma unroll
    for (int i = 0; i < C::value_dim / 2; ++i) dv[i] = 0.0f;
    Place<C> at = Place<C>::begin(p, work, C::panels == 4 ? first_panel<C>(own_rank()) : 0);
    const uint32_t tiles = count();
    ptx::mbarrier_wait(shared.k_full(), 0);
    if (tiles != 0) {
      Scores s;
      const Left<C::head_dim> left(shared.k);
      ptx::mbarrier_wait(shared.q_full(0), 0);
      issue_scores<C::head_dim>(s, left, q(0));
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(s);
      while (at.i + 1 < tiles) first_step<false>(at, left, s, dv);
      first_step<true>(at, left, s, dv);
    }
    store<C, C::value_dim>(p, work_again(), p.dv, p.dv_stride, dv, 1.0f, p.value_dim, first_key());
  }

  // A tile of the second: dp is the tile's, and then the next one's.
  template <bool Last>
  __device__ __forceinline__ void second_step(Place<C>& at, const Left<C::value_dim>& left, Scores& dp,
                                              float (&dk)[C::head_dim / 2]) const {
    const uint32_t stage = stage_of<C::q_stages>(at.i), o_stage = stage_of<C::o_stages>(at.i), buffer = at.i % 2;
    Fragments ds;
    ptx::mbarrier_wait_cluster(shared.ds_free(buffer), (at.i / 2 & 1) ^ 1);
    ptx::bar_sync(weights_barrier, consumers);
    differentiate(dp, ds, shared.d_sum + o_stage * C::row_bytes, own_ds(buffer));
    ptx::fence_proxy_async_shared();
    release<C>(shared.o_empty(o_stage));
    ptx::bar_sync(half_barrier, 128);
    if (thread() == 0) {
      const uint32_t own = own_ds(buffer), other = own_rank() ^ 1;
      ptx::bulk_copy_to_cluster(ptx::mapa(own, other), own, 8192, ptx::mapa(shared.ds_full(buffer), other));
      ptx::mbarrier_arrive_expect_tx(shared.ds_full(buffer), 8192);
    } else {
      ptx::mbarrier_arrive(shared.ds_full(buffer));
    }
    issue_gradient<C::head_dim>(dk, ds, q(stage));
    if constexpr (!Last) {
      const uint32_t next = at.i + 1;
      ptx::mbarrier_wait(shared.o_full(stage_of<C::o_stages>(next)), parity_of<C::o_stages>(next));
      issue_scores<C::value_dim>(dp, left, d_out(stage_of<C::o_stages>(next)));
      ptx::wgmma_wait_group<1>();
    } else {
      ptx::wgmma_wait_group<0>();
    }
    ptx::wgmma_fence_operand(dk);
    release<C>(shared.q_empty(stage));
    finish_dq<1>(at);
    if constexpr (!Last) ptx::wgmma_fence_operand(dp);
    at.next(p, work);
  }

  __device__ __forceinline__ void run_second() const {
    float dk[C::head_dim / 2];
#pragma unroll
    for (int i = 0; i < C::head_dim / 2; ++i) dk[i] = 0.0f;
    Place<C> at = Place<C>::begin(p, work, C::panels == 4 ? first_panel<C>(own_rank()) + 1 : 0);
    const uint32_t tiles = count();
    ptx::mbarrier_wait(shared.k_full(), 0);
    ptx::mbarrier_wait(shared.v_full(), 0);
    if (tiles != 0) {
      Scores dp;
      const Left<C::value_dim> left(shared.v);
      ptx::mbarrier_wait(shared.o_full(0), 0);
      issue_scores<C::value_dim>(dp, left, d_out(0));
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(dp);
      while (at.i + 1 < tiles) second_step<false>(at, left, dp, dk);
      second_step<true>(at, left, dp, dk);
    }
    store<C, C::head_dim>(p, work_again(), p.dk, p.dk_stride, dk, p.scale, p.head_dim, first_key());
  }
};

}  // namespace cuda_llm_ops::cuda::backward
