// The steps that the consumer warpgroups of all Hopper flash kernels share: waits on the rings, products by wgmma,
// masks, the pipeline over the key blocks of a tile, and the store of aligned rows.
//
// A consumer warpgroup has 64 query rows and keeps scores, weights and outputs in registers. Step j of a tile:
//   issue the scores of block j            s = q k^T
//   issue the product of block j + 1       o += weights v
//   softmax of block j                     runs under that product
//   rescale o, if the row maxima grew
// With C::ping_pong the warpgroups issue in turn, so that the softmax of one runs under the products of the others.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/wgmma.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "softmax.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// Named barriers; 0 is __syncthreads().
// One for each warpgroup, from this number on: its turn to issue products.
constexpr uint32_t kTurnBarrier = 1;
// Realigned rows: one for each of two warpgroups, from this number on. The warpgroup's warps meet at it.
constexpr uint32_t kQueriesBarrier = 8;
// Realigned rows: the rings are free. The next number: the first queries have arrived.
constexpr uint32_t kPrologueBarrier = 10;

// x[i] of lane q becomes x[q] of lane i, within each four lanes.
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4], int quad) {
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

// The base of every consumer. `Consumer` is the variant, which may replace any of these functions by one of the same
// name.
template <typename C, typename Consumer, typename Layout, typename Parameters>
struct Steps {
  using T = typename C::T;
  using Weights = uint32_t[C::block_n / 16][4];  // 16 bits each: A fragments of 16 keys each
  static constexpr int n = C::block_n, d = C::head_dim, value_dim = C::value_dim, steps = C::steps;
  static constexpr int step = C::split_keys ? 2 : 1;  // from a key block to this warpgroup's next

  const Parameters& p;
  const Layout& shared;
  const int group;  // this warpgroup, of the consumers
  const int lane;
  float o[C::v_columns / 2];
  RowState state;

  __device__ __forceinline__ Steps(const Parameters& parameters, const Layout& layout, int warp_group)
      : p(parameters), shared(layout), group(warp_group), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ Consumer& self() { return *static_cast<Consumer*>(this); }
  __device__ __forceinline__ const Consumer& self() const { return *static_cast<const Consumer*>(this); }

  // ---- turns and rings ----

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C::ping_pong) ptx::bar_sync(kTurnBarrier + group, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C::ping_pong) ptx::bar_arrive(kTurnBarrier + self().next_in_turn(), 256);
  }
  __device__ __forceinline__ int next_in_turn() const { return group + 1 == C::consumers ? 0 : group + 1; }
  // The last warpgroup gives the first its turn.
  __device__ __forceinline__ void begin_turns() const {
    if constexpr (C::ping_pong) {
      if (group == C::consumers - 1) ptx::bar_arrive(kTurnBarrier, 256);
    }
  }

  __device__ __forceinline__ void wait_k(uint32_t count) const {
    ptx::mbarrier_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }
  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ void release_k(uint32_t count) const {
    release_to_cluster(shared.k_empty(ring_stage<C::stages>(count)));
  }
  __device__ __forceinline__ void release_v(uint32_t count) const {
    release_to_cluster(shared.v_empty(ring_stage<C::stages>(count)));
  }
  // Arrives at the barrier of every thread block whose loads write the buffer.
  __device__ __forceinline__ void release_to_cluster(uint32_t barrier) const {
    if constexpr (C::cluster == 1) {
      release(barrier);
    } else {
      if (lane < C::cluster) ptx::mbarrier_arrive_cluster(barrier, static_cast<uint32_t>(lane));
    }
  }
  // Passes key blocks by that other warpgroups use and that this one's rows do not see.
  __device__ __forceinline__ void skip(uint32_t count) const {
    const uint32_t stage = ring_stage<C::stages>(count), parity = ring_parity<C::stages>(count);
    ptx::mbarrier_wait(shared.k_full(stage), parity);
    release_k(count);
    ptx::mbarrier_wait(shared.v_full(stage), parity);
    release_v(count);
  }

  // ---- products, of tiles in panels of 64 columns ----

  __device__ __forceinline__ uint32_t own_queries() const {
    return shared.q + (C::split_keys ? 0 : group) * C::q_bytes;
  }
  // Returns when this warpgroup's queries of its tile number q_count are there.
  __device__ __forceinline__ void await_queries(uint32_t q_count) {
    ptx::mbarrier_wait(shared.q_full(C::split_keys ? 0 : group), q_count & 1);
  }
  __device__ __forceinline__ void release_q() const { release(shared.q_empty(C::split_keys ? 0 : group)); }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) const {
    const uint64_t q = ptx::k_major_descriptor(self().own_queries());
    const uint64_t k = ptx::k_major_descriptor(shared.k + ring_stage<C::stages>(count) * C::k_bytes);
    wait_turn();
    ptx::wgmma_fence_operand(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      ptx::Wgmma<n>::template ss<T, 0, 0>(s, q + panel * 512 + within, k + panel * (n * 8) + within, i != 0);
    }
    ptx::wgmma_commit_group();
  }

  // o += weights v of the ring's V tile `count`; one committed group.
  __device__ __forceinline__ void issue_output(Weights& weights, uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    ptx::mbarrier_wait(shared.v_full(stage), ring_parity<C::stages>(count));
    const uint64_t v = ptx::mn_major_descriptor(shared.v + stage * C::v_bytes, n);
    fence_operands(weights);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::Wgmma<value_dim>::template rs<T, 1>(o, weights[i], v + i * 128, 1);
    ptx::wgmma_commit_group();
  }

  // Keeps the compiler from moving accesses to the registers of a product across it.
  __device__ __forceinline__ void fence_operands(Weights& weights) {
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(weights[i]);
  }

  // ---- masks ----

  // The query, of this warpgroup's 64, whose scores this thread has: the first or second of its rows.
  __device__ __forceinline__ int row(int h) const { return threadIdx.x % 128 / 32 * 16 + lane / 4 + h * 8; }

  // Masks key block j if it ends past what the first row sees. half: only the first half of its columns was computed.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j, int first_row, bool half = false) const {
    const int unmasked = p.causal ? min(p.seq_kv, first_row + 1) : p.seq_kv;
    if ((j + 1) * n > unmasked) {
      const int first_key = j * n + lane % 4 * 2;
      const int limit0 = p.causal ? min(p.seq_kv, first_row + row(0) + 1) : p.seq_kv;
      const int limit1 = p.causal ? min(p.seq_kv, first_row + row(1) + 1) : p.seq_kv;
      mask_scores(s, limit0 - first_key, limit1 - first_key, half);
    }
  }

  // The i-th tile of this thread block. By reference: by value, the compiler keeps i in another register.
  __device__ __forceinline__ auto next_tile(const int& i) const { return tile_at<C>(p, i); }

  // ---- the pipeline over the key blocks of a tile ----

  // Called when the first scores of a tile are there, and when the last ones are.
  __device__ __forceinline__ void after_first_scores() const {}
  __device__ __forceinline__ void after_last_scores() const { self().release_q(); }

  // Key blocks j = first, first - step, .. >= 0, whose ring positions are count, count + step, ..
  __device__ __forceinline__ void attend(int first, uint32_t count, int first_row) {
    Weights a, b;
    {
      float s[n / 2], rescale[2];
      wait_k(count);
      self().issue_scores(s, count);
      pass_turn();
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(s);
      release_k(count);
      self().after_first_scores();
      self().mask(s, first, first_row);
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
      self().after_last_scores();
      end(b, count + step);
    } else {
      self().after_last_scores();
      end(a, count);
    }
  }

  // One key block: its scores, and under its softmax the product of the block before, whose weights are `previous`.
  __device__ __forceinline__ void advance(Weights& previous, Weights& next, int j, uint32_t count, int first_row) {
    float s[n / 2], rescale[2];
    self().issue_scores(s, count + step);
    self().issue_output(previous, count);
    pass_turn();
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    release_k(count + step);
    self().mask(s, j, first_row);
    const bool kept = try_block<T, !C::product_sums>(next, s, state, p.scale_log2);
    if (!kept) take_block<T, !C::product_sums>(next, s, state, rescale, p.scale_log2);
    if (j >= step) wait_k(count + 2 * step);
    ptx::wgmma_wait_group<0>();
    fence_operands(previous);
    release_v(count);
    if (!kept) rescale_output(o, rescale);
  }

  // The last product of a tile.
  __device__ __forceinline__ void end(Weights& last, uint32_t count) {
    self().issue_output(last, count);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
    release_v(count);
  }

  __device__ __forceinline__ void reset() {
    state.reset();
#pragma unroll
    for (int e = 0; e < C::v_columns / 2; ++e) o[e] = 0.0f;
  }

  // ---- the store ----

  // Factor that normalises the outputs of a row.
  __device__ __forceinline__ float row_factor(int h) const { return finish(state, h); }

  template <typename Tile>
  __device__ __forceinline__ T* head_of(const Tile& tile) const {
    return static_cast<T*>(p.out) + tile.batch * p.out_batch + tile.head * p.out_head;
  }

  // Normalises and writes. The four lanes of a row exchange pairs so that each writes 16 bytes of four 8-column groups.
  __device__ __forceinline__ void store_aligned(T* head, int first_row) const {
    const int quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = self().row_factor(h);
      const int at = first_row + row(h);
      T* const to = head + at * p.out_seq;
      const bool inside = at < p.seq_q;
#pragma unroll
      for (int g = 0; g + 4 <= value_dim / 8; g += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = pack_pair<T>(o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
        }
        transpose_quad(x, quad);
        const int column = 8 * (g + quad);
        if (inside && column < p.value_dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
#pragma unroll
      for (int g = value_dim / 8 / 4 * 4; g < value_dim / 8; ++g) {
        const int column = 8 * g + 2 * quad;
        const uint32_t x = pack_pair<T>(o[4 * g + 2 * h] * factor, o[4 * g + 2 * h + 1] * factor);
        if (inside && column < p.value_dim) *reinterpret_cast<uint32_t*>(to + column) = x;
      }
    }
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
