// Attention's backward on Hopper. A thread block owns 128 keys of a key head, holds their dK and dV in registers, and
// walks over the queries that see them, of all query heads that share the key head, from the last tile to the first.
//
// Two consumer warpgroups of 64 keys each. Scores are computed transposed, keys by queries: then P^T and dS^T are in
// registers as the tensor cores want their left operand, and only dS goes through shared memory, once, for dQ.
//
//   S^T  = K Q^T      dP^T = V dO^T      dV += P^T dO      dQ = dS K      dK +=
//   dS^T Q
//
// Order of a warpgroup's products: S dP dV dQ dK. The exponentials run under dP; dS is computed and stored under dV; dQ
// is added to memory under dK. At head_dim 64 a tile has 128 queries: half of them go as far as dS, and their dV and dK
// are begun, before the exponentials of the other half, which are too many for dP to hide.
//
// dQ goes from registers to float32 sums in memory (sm90_backward.h). Deterministic: thread blocks add to a tile of dQ
// in the order of their keys. They start in that order and all walk downwards, so that each comes to a tile after the
// one before; two helper warps wait and pass the turn on.
//
// Shared memory, tiles in panels of 64 columns (128 bytes, TMA's swizzle): K, V [panel][128 rows], Q, dO
// [stage][panel][block_m rows], dS [2][panel of 64 queries][128 keys].
#pragma once

#include "sm90_packed.cuh"
#include "sm90_walk.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename C>
struct Consumer;

template <typename T_, int HeadDim, int BlockM, Way Is>
struct Config {
  using T = T_;
  static constexpr int head_dim = HeadDim, value_dim = HeadDim, block_m = BlockM, block_n = 128, q_stages = 2,
                       o_stages = 2;
  static constexpr int cluster = 1, walk_n = block_n, other_k_bytes = 0;
  static constexpr bool deterministic = is_in_turn(Is), packed = is_packed(Is), windowed = packed || Is == Way::window;
  static constexpr bool halves = BlockM == 128;  // of a tile's queries, one after the other
  static constexpr int panels = HeadDim / 64, value_panels = panels, query_panels = BlockM / 64;
  static constexpr int threads = 384;
  static constexpr int k_bytes = block_n * HeadDim * 2, v_bytes = k_bytes;
  static constexpr int q_bytes = BlockM * HeadDim * 2, d_out_bytes = q_bytes;
  static constexpr int ds_buffers = 2, ds_bytes = block_n * BlockM * 2, weight_bytes = 0, row_bytes = BlockM * 4;
  static constexpr int arrivals = halves ? consumers : consumers / 32;
  static constexpr int dq_bytes = halves || deterministic ? 0 : 2 * sum_floats * 4;

  static __device__ __forceinline__ void compute(const Parameters& p, const Layout<Config>& shared, const Work& work) {
    Consumer<Config>(p, shared, work).run();
  }
  static_assert(panels * query_panels == 2, "each warpgroup computes one 64 x 64 block of dQ");
};

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
      : p(parameters), shared(layout), work(its_work), warpgroup(own_warpgroup()) {}

  __device__ __forceinline__ int first_key() const { return work.n * C::block_n + warpgroup * 64; }

  // scores = own 64 rows of `left` (K or V) times the rows of `right` (Q or dO), summed over head_dim; one group.
  __device__ __forceinline__ void issue_scores(float (&scores)[m / 2], uint32_t left, uint32_t right) const {
    const uint64_t a = ptx::k_major_descriptor(left + warpgroup * 8192), b = ptx::k_major_descriptor(right);
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < d / 16; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      ptx::Wgmma<m>::template ss<T, 0, 0>(scores, a + panel * (C::block_n * 8) + within, b + panel * (m * 8) + within,
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
    const uint64_t a = ptx::mn_major_descriptor(ds + (C::query_panels == 2 ? warpgroup * 16384 : 0), C::block_n);
    const uint64_t b = ptx::mn_major_descriptor(shared.k + (C::panels == 2 ? warpgroup * 16384 : 0), C::block_n);
    ptx::wgmma_fence_operand(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::block_n / 16; ++i)
      ptx::Wgmma<64>::template ss<T, 1, 1>(dq, a + i * 128, b + i * 128, i != 0);
    ptx::wgmma_commit_group();
  }

  // Here and below Begin and End count steps of 16 queries.
  //
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

  // The same for the whole tile, with rows of d_sum that were loaded before.
  __device__ __forceinline__ void differentiate(const float (&weights)[m / 2], float (&dp)[m / 2], Fragments& fragments,
                                                const Rows<m>& d_sum, uint32_t ds) const {
    const int t = thread(), key_row = warpgroup * 64 + t / 32 * 16 + t % 16;
    const uint32_t to = ds + key_row * 128;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& x = dp[8 * i + e];
        const float2 mean = d_sum[2 * i + e / 4];
        x = weights[8 * i + e] * (x - (e % 2 == 0 ? mean.x : mean.y));
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) fragments[i][e] = ptx::cvt_rn_x2<T>(dp[8 * i + 2 * e], dp[8 * i + 2 * e + 1]);
      const uint32_t (&four)[4] = fragments[i];
      const int chunk = 2 * i + t % 32 / 16;  // of 8 queries
      ptx::stmatrix_x4(to + (chunk ^ (key_row % 8)) * 16, four[0], four[1], four[2], four[3]);
    }
  }

  // From S to dS, with rows loaded ahead; dV is begun.
  __device__ __forceinline__ void find_ds(const Place<C>& at, Fragments& weights, Fragments& ds, uint32_t stage,
                                          uint32_t parity) {
    const uint32_t q = shared.q + stage * C::q_bytes, d_out = shared.d_out + stage * C::q_bytes;
    float s[m / 2], dp[m / 2];
    Rows<m> lse, d_sum;
    ptx::mbarrier_wait(shared.q_full(stage), parity);
    issue_scores(s, shared.k, q);
    load_rows<m>(lse, shared.lse + stage * C::row_bytes);
    ptx::mbarrier_wait(shared.o_full(stage), parity);
    issue_scores(dp, shared.v, d_out);
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    find_exponents<C>(p, work, s, lse, at.m * m, first_key());
    load_rows<m>(d_sum, shared.d_sum + stage * C::row_bytes);
#pragma unroll
    for (int i = 0; i < m / 2; ++i) s[i] = ptx::ex2(s[i]);
    pack<T, 0, steps>(weights, s);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(dp);
    issue_gradient<0, steps>(dv, weights, d_out);
    differentiate(s, dp, ds, d_sum, shared.ds + stage * C::ds_bytes);
  }

  // One tile of queries.
  __device__ __forceinline__ void step(Place<C>& at) {
    const uint32_t stage = stage_of<C::q_stages>(at.i), parity = parity_of<C::q_stages>(at.i);
    const uint32_t q = shared.q + stage * C::q_bytes, d_out = shared.d_out + stage * C::q_bytes;
    const uint32_t ds_at = shared.ds + stage * C::ds_bytes;
    const uint32_t lse = shared.lse + stage * C::row_bytes, d_sum = shared.d_sum + stage * C::row_bytes;
    constexpr int half = steps / 2;
    Fragments weights, ds;
    float dq[32];
    if constexpr (!C::halves) {
      find_ds(at, weights, ds, stage, parity);
    } else {
      float s[m / 2], dp[m / 2];
      ptx::mbarrier_wait(shared.q_full(stage), parity);
      issue_scores(s, shared.k, q);
      ptx::mbarrier_wait(shared.o_full(stage), parity);
      issue_scores(dp, shared.v, d_out);
      ptx::wgmma_wait_group<1>();
      ptx::wgmma_fence_operand(s);
      weigh<C, 0, half>(p, work, s, lse, at.m * m, first_key());
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(dp);
      pack<T, 0, half>(weights, s);
      differentiate<0, half>(s, dp, ds, d_sum, ds_at);
      issue_gradient<0, half>(dv, weights, d_out);
      issue_gradient<0, half>(dk, ds, q);
      weigh<C, half, steps>(p, work, s, lse, at.m * m, first_key());
      pack<T, half, steps>(weights, s);
      differentiate<half, steps>(s, dp, ds, d_sum, ds_at);
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(ds_barrier, 256);
    issue_dq(dq, ds_at);
    if constexpr (!C::halves) {
      issue_gradient<0, steps>(dk, ds, q);
      ptx::wgmma_wait_group<1>();
      release<C>(shared.o_empty(stage));
    } else {
      issue_gradient<half, steps>(dv, weights, d_out);
      issue_gradient<half, steps>(dk, ds, q);
      ptx::wgmma_wait_group<2>();
    }
    ptx::wgmma_fence_operand(dq);
    if constexpr (C::dq_bytes > 0) {
      store_dq<C>(shared, warpgroup, dq);
    } else {
      add_dq<C, 64>(shared, work.n, warpgroup, dq, at.sums, stage);
    }
    at.next(p, work);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(dk);
    ptx::wgmma_fence_operand(dv);
    if constexpr (C::halves) release<C>(shared.o_empty(stage));
    release<C>(shared.q_empty(stage));
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < d / 2; ++i) dk[i] = dv[i] = 0.0f;
    Place<C> at = Place<C>::begin(p, work, warpgroup);
    ptx::mbarrier_wait(shared.k_full(), 0);
    ptx::mbarrier_wait(shared.v_full(), 0);
    const int count = work.tiles * p.group;
    for (int i = 0; i < count; ++i) step(at);
    store<C, d>(p, work, p.dv, p.dv_stride, dv, 1.0f, p.value_dim, first_key());
    store<C, d>(p, work, p.dk, p.dk_stride, dk, p.scale, p.head_dim, first_key());
  }
};

}  // namespace cuda_llm_ops::cuda::backward
