// dQ by mma.sync. A thread block owns C::block_m queries of a head, keeps their dQ in registers, and walks over the keys
// that they see. It computes scores and weights a second time (keys.cuh has them too): seven products in all where five
// would do, for sums that need no atomics, no memory, and have the same bits at every launch.
//
//   S = Q K^T    dP = dO V^T    dQ += dS K
//
// A warp has 16 * C::row_tiles queries.
#pragma once

#include "../../ptx/ex2.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/special_registers.cuh"
#include "../place.cuh"
#include "tile.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T_, int HeadDim, int ValueDim, int Warps, int RowTiles, int BlockN, int Stages = 2>
struct QueriesConfig {
  using T = T_;
  static constexpr int head_dim = HeadDim, value_dim = ValueDim, warps = Warps, row_tiles = RowTiles;
  static constexpr int block_n = BlockN, stages = Stages;
  static constexpr int threads = warps * 32, warp_rows = row_tiles * 16, block_m = warps * warp_rows;
  static constexpr int pitch = pitch_of(head_dim), value_pitch = pitch_of(value_dim);
  static constexpr int q_bytes = block_m * pitch, d_out_bytes = block_m * value_pitch;
  static constexpr int k_bytes = block_n * pitch, stage_bytes = k_bytes + block_n * value_pitch;
  static constexpr int row_bytes = block_m * 4;  // of lse_2, of d_sum
  static constexpr int plan = q_bytes + d_out_bytes + stages * stage_bytes + 2 * row_bytes;
  static constexpr int shared_bytes = plan + sizeof(Plan);
  static_assert(head_dim % 16 == 0 && value_dim % 16 == 0 && block_n % 16 == 0);
};

// One tile of keys, from first_key on, in `stage`.
template <typename C>
__device__ __forceinline__ void queries_step(const GeneralParameters& p, const volatile Plan& plan, uint32_t q_at,
                                             int stage, int first_key, float (&dq)[C::row_tiles][C::head_dim / 8][4]) {
  using T = typename C::T;
  constexpr int columns = C::block_n / 8;
  const int thread = ptx::fresh_tid_x(), lane = thread % 32, warp_row = thread / 32 * C::warp_rows;
  const int first_q = plan.first + warp_row;
  const Pairs all{first_q, first_q + C::warp_rows - 1, first_key, first_key + C::block_n - 1};
  if (all.all_hidden(Plan::span(plan))) return;

  const uint32_t d_out_at = q_at + C::q_bytes, ring = d_out_at + C::d_out_bytes;
  const uint32_t k_at = ring + stage * C::stage_bytes, v_at = k_at + C::k_bytes;
  const uint32_t lse_at = ring + C::stages * C::stage_bytes + (warp_row + lane / 4) * 4, sum_at = lse_at + C::row_bytes;
  float s[C::row_tiles][columns][4], dp[C::row_tiles][columns][4];
  multiply<T, C::head_dim, C::pitch>(s, q_at + warp_row * C::pitch + left_lane<C::pitch>(lane),
                                     k_at + right_lane<C::pitch>(lane));
  float lse[C::row_tiles][2];
#pragma unroll
  for (int j = 0; j < C::row_tiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      lse[j][half] = __int_as_float(ptx::load_shared(lse_at + (j * 16 + half * 8) * 4));
  }
  const auto weigh = [&](int n) {
#pragma unroll
    for (int j = 0; j < C::row_tiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[j][n][e] = cuda_llm_ops::ptx::ex2(__fmaf_rn(s[j][n][e], p.scale_log2, -lse[j][e / 2]));
    }
  };
  multiply<T, C::value_dim, C::value_pitch>(dp, d_out_at + warp_row * C::value_pitch + left_lane<C::value_pitch>(lane),
                                            v_at + right_lane<C::value_pitch>(lane), weigh);
#pragma unroll
  for (int j = 0; j < C::row_tiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float mean = __int_as_float(ptx::load_shared(sum_at + (j * 16 + half * 8) * 4));
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; ++e) s[j][n][e] *= dp[j][n][e] - mean;
      }
    }
  }
  // Hidden pairs count nothing, whatever was computed of them.
  const attention::Span span = Plan::span(plan);
  if (all.some_hidden(span)) {
    const int query = first_q + lane / 4, key = first_key + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < C::row_tiles; ++j) {
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (!visible(span, query + j * 16 + e / 2 * 8, key + n * 8 + e % 2)) s[j][n][e] = 0.0f;
        }
      }
    }
  }
  const uint32_t columns_of_k = k_at + left_lane<C::pitch>(lane);
#pragma unroll
  for (int step = 0; step < C::block_n / 16; ++step) {
    uint32_t ds[C::row_tiles][4];
#pragma unroll
    for (int j = 0; j < C::row_tiles; ++j) pack<T>(ds[j], s[j], step);
    accumulate<T>(dq, ds, columns_of_k + step * 16 * C::pitch);
  }
}

template <typename C>
__device__ __forceinline__ void queries_body(const GeneralParameters& p, int tiles, unsigned char* memory, int block) {
  using T = typename C::T;
  volatile Plan& plan = *reinterpret_cast<volatile Plan*>(memory + C::plan);
  const uint32_t q_at = ptx::shared_address(memory), d_out_at = q_at + C::q_bytes, ring = d_out_at + C::d_out_bytes;
  const auto rows_of = [&](const void* tensor, const HeadStrides& stride, int head, int row) {
    return reinterpret_cast<const char*>(static_cast<const T*>(tensor) + plan.batch * stride.batch +
                                         head * stride.head + row * stride.seq);
  };
  const auto copy_keys = [&](int stage, int begin) {
    const int thread = ptx::fresh_tid_x();
    const uint32_t to = ring + stage * C::stage_bytes;
    const int head = plan.head / p.group, rows = plan.seq_kv - begin, first = plan.first_kv + begin;
    copy_tile<C::block_n, C::head_dim, C::threads>(to, rows_of(p.k, p.k_stride, head, first), p.k_stride.seq * 2, rows,
                                                   padded(p.head_dim), thread);
    copy_tile<C::block_n, C::value_dim, C::threads>(to + C::k_bytes, rows_of(p.v, p.v_stride, head, first),
                                                    p.v_stride.seq * 2, rows, padded(p.value_dim), thread);
  };
  {
    const Place place = Place::of(block, tiles, p.batch * p.heads, p.section * p.group);
    const int batch = place.head / p.heads;
    const attention::Span span = attention::span_of(p.options, batch, p.seq_q, p.seq_kv);
    const int first_q = (tiles - 1 - place.tile) * C::block_m;  // the last rows see the most keys
    if (first_q >= span.seq_q) return;
    const Tiles walk = keys_seen_by(span, first_q, C::block_m, C::block_n);
    if (threadIdx.x == 0) Plan::write(plan, batch, place.head % p.heads, span, first_q, walk);
    __syncthreads();
    if (walk.count > 0) {
      const int thread = ptx::fresh_tid_x(), head = plan.head, rows = span.seq_q - first_q;
      const int row = span.first_q + first_q;
      copy_tile<C::block_m, C::head_dim, C::threads>(q_at, rows_of(p.q, p.q_stride, head, row), p.q_stride.seq * 2,
                                                     rows, padded(p.head_dim), thread);
      copy_tile<C::block_m, C::value_dim, C::threads>(d_out_at, rows_of(p.d_out, p.d_out_stride, head, row),
                                                      p.d_out_stride.seq * 2, rows, padded(p.value_dim), thread);
      const int64_t at = batch * p.row_stride.batch + head * p.row_stride.head + row;
      const uint32_t rows_at = ring + C::stages * C::stage_bytes;
      copy_floats<C::block_m>(rows_at, p.lse_2 + at, rows, thread);
      copy_floats<C::block_m>(rows_at + C::row_bytes, p.d_sum + at, rows, thread);
      copy_keys(0, walk.begin);
    }
    ptx::cp_async_commit_group();
  }

  float dq[C::row_tiles][C::head_dim / 8][4];
#pragma unroll
  for (int i = 0; i < C::row_tiles; ++i) {
#pragma unroll
    for (int n = 0; n < C::head_dim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) dq[i][n][e] = 0.0f;
    }
  }
  for (int i = 0; i < plan.count; ++i) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    const auto copy_next = [&] {
      if (i + 1 < plan.count) copy_keys((i + 1) % C::stages, plan.begin + (i + 1) * C::block_n);
      ptx::cp_async_commit_group();
    };
    if constexpr (C::stages == 2) copy_next();
    queries_step<C>(p, plan, q_at, i % C::stages, plan.begin + i * C::block_n, dq);
    if constexpr (C::stages == 1) {
      __syncthreads();
      copy_next();
    }
  }
  const int thread = ptx::fresh_tid_x();
  T* const to = static_cast<T*>(p.dq) + plan.batch * p.dq_stride.batch + plan.head * p.dq_stride.head +
                plan.first_q * p.dq_stride.seq;
  store(to, p.dq_stride.seq, dq, p.scale, plan.first + thread / 32 * C::warp_rows, plan.seq_q, 0, p.head_dim,
        thread % 32);
}

}  // namespace cuda_llm_ops::cuda::backward
