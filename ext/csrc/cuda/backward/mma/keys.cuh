// dK and dV by mma.sync. A thread block owns C::block_n keys of a key head, keeps their dK and dV in registers, and walks
// over the queries that see them, of all query heads that share the key head. So no two blocks add to the same number,
// and the bits are the same at every launch.
//
//   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q
//
// Scores are computed transposed, keys by queries: then P^T and dS^T are in registers as mma.sync wants its left operand.
// A warp has 16 * C::key_tiles keys. Where the sums of these over all columns are more than its registers hold, two warps
// share the keys (C::halves): each computes P and dS for half of a tile's queries, gives them to the other through shared
// memory as they lie in registers, and sums half of the columns.
//
//   step:  wait for the copies of this tile; __syncthreads(); begin those of the next tile; compute
//
// With one stage, for devices with little shared memory, the copies begin after __syncthreads() behind the computation.
#pragma once

#include "../../ptx/barrier.cuh"
#include "../../ptx/ex2.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/shared_pair.cuh"
#include "../../ptx/shared_vectors.cuh"
#include "../../ptx/special_registers.cuh"
#include "../place.cuh"
#include "tile.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T_, int HeadDim, int ValueDim, int Warps, int KeyTiles, int Halves, int BlockM, int Stages = 2>
struct KeysConfig {
  using T = T_;
  static constexpr int head_dim = HeadDim, value_dim = ValueDim, warps = Warps, key_tiles = KeyTiles;
  static constexpr int halves = Halves, block_m = BlockM, stages = Stages;
  static constexpr int threads = warps * 32, warp_keys = key_tiles * 16, block_n = warps / halves * warp_keys;
  static constexpr int pitch = pitch_of(head_dim), value_pitch = pitch_of(value_dim);
  static constexpr int k_bytes = block_n * pitch, v_bytes = block_n * value_pitch;
  static constexpr int q_bytes = block_m * pitch, d_out_bytes = block_m * value_pitch, row_bytes = block_m * 4;
  static constexpr int stage_bytes = q_bytes + d_out_bytes + 2 * row_bytes;
  static constexpr int queries = block_m / halves;                // of a warp's scores
  static constexpr int steps = queries / 16;                      // of its sums' products
  static constexpr int parcel = 2 * steps * key_tiles * 32 * 16;  // P and dS of a warp, as they lie in registers
  static constexpr int plan = k_bytes + v_bytes + stages * stage_bytes + (halves > 1 ? warps * parcel : 0);
  static constexpr int shared_bytes = plan + sizeof(Plan);
  static_assert(head_dim % (16 * halves) == 0 && value_dim % (16 * halves) == 0 && queries % 16 == 0);
  static_assert(halves <= 2 && threads >= block_m);
};

__device__ __forceinline__ uint4 vector_of(const uint32_t (&words)[4]) {
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void load_left(uint32_t (&left)[4], uint32_t address) {
  const uint4 words = ptx::load_shared_vector(address);
  left[0] = words.x, left[1] = words.y, left[2] = words.z, left[3] = words.w;
}

// One tile of queries, from first_q on, in `stage`.
template <typename C, int HeadColumns, int ValueColumns>
__device__ __forceinline__ void keys_step(const GeneralParameters& p, const volatile Plan& plan, uint32_t k_at,
                                          int stage, int first_q, float (&dk)[C::key_tiles][HeadColumns][4],
                                          float (&dv)[C::key_tiles][ValueColumns][4]) {
  using T = typename C::T;
  const int thread = ptx::fresh_tid_x(), lane = thread % 32, warp = thread / 32;
  const int half = C::halves == 1 ? 0 : warp % 2, group = warp / C::halves;
  const int warp_key = group * C::warp_keys, first_key = plan.first + warp_key;
  const Pairs all{first_q, first_q + C::block_m - 1, first_key, first_key + C::warp_keys - 1};
  if (all.all_hidden(Plan::span(plan))) return;  // of both warps that share keys

  const uint32_t v_at = k_at + C::k_bytes, ring = v_at + C::v_bytes, parcels = ring + C::stages * C::stage_bytes;
  const uint32_t q_at = ring + stage * C::stage_bytes, d_out_at = q_at + C::q_bytes;
  const uint32_t lse_at = d_out_at + C::d_out_bytes + (half * C::queries + lane % 4 * 2) * 4;
  const uint32_t sum_at = lse_at + C::row_bytes;
  const int its_q = half * C::queries;  // the first of the warp's, of the tile's
  uint32_t weights[C::steps][C::key_tiles][4], ds[C::steps][C::key_tiles][4];
  {
    float s[C::key_tiles][C::queries / 8][4], dp[C::key_tiles][C::queries / 8][4];
    multiply<T, C::head_dim, C::pitch>(s, k_at + warp_key * C::pitch + left_lane<C::pitch>(lane),
                                       q_at + its_q * C::pitch + right_lane<C::pitch>(lane));
    const auto weigh = [&](int n) {
      const float2 lse = ptx::load_shared_pair(lse_at + n * 32);
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[j][n][e] = cuda_llm_ops::ptx::ex2(__fmaf_rn(s[j][n][e], p.scale_log2, e % 2 == 0 ? -lse.x : -lse.y));
      }
    };
    multiply<T, C::value_dim, C::value_pitch>(dp, v_at + warp_key * C::value_pitch + left_lane<C::value_pitch>(lane),
                                              d_out_at + its_q * C::value_pitch + right_lane<C::value_pitch>(lane),
                                              weigh);
#pragma unroll
    for (int n = 0; n < C::queries / 8; ++n) {
      const float2 mean = ptx::load_shared_pair(sum_at + n * 32);
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) dp[j][n][e] = s[j][n][e] * (dp[j][n][e] - (e % 2 == 0 ? mean.x : mean.y));
      }
    }
    // Hidden pairs count nothing, whatever was computed of them.
    const attention::Span span = Plan::span(plan);
    if (all.some_hidden(span)) {
      const int query = first_q + its_q + lane % 4 * 2, key = first_key + lane / 4;
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) {
#pragma unroll
        for (int n = 0; n < C::queries / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (!visible(span, query + n * 8 + e % 2, key + j * 16 + e / 2 * 8)) s[j][n][e] = dp[j][n][e] = 0.0f;
          }
        }
      }
    }
#pragma unroll
    for (int step = 0; step < C::steps; ++step) {
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) {
        pack<T>(weights[step][j], s[j], step);
        pack<T>(ds[step][j], dp[j], step);
      }
    }
  }
  if constexpr (C::halves == 2) {
    const uint32_t mine = parcels + warp * C::parcel + lane * 16;
#pragma unroll
    for (int step = 0; step < C::steps; ++step) {
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) {
        const uint32_t to = mine + (step * C::key_tiles + j) * 2 * 512;
        ptx::store_shared_vector(to, vector_of(weights[step][j]));
        ptx::store_shared_vector(to + 512, vector_of(ds[step][j]));
      }
    }
  }
  const uint32_t columns_of_q = q_at + half * HeadColumns * 16 + left_lane<C::pitch>(lane);
  const uint32_t columns_of_d_out = d_out_at + half * ValueColumns * 16 + left_lane<C::value_pitch>(lane);
#pragma unroll
  for (int step = 0; step < C::steps; ++step) {
    const int row = its_q + step * 16;
    accumulate<T>(dv, weights[step], columns_of_d_out + row * C::value_pitch);
    accumulate<T>(dk, ds[step], columns_of_q + row * C::pitch);
  }
  if constexpr (C::halves == 2) {
    ptx::bar_sync(1 + group, 64);
    const uint32_t other = parcels + (warp ^ 1) * C::parcel + lane * 16;
#pragma unroll
    for (int step = 0; step < C::steps; ++step) {
      uint32_t left[C::key_tiles][4];
      const int row = C::queries - its_q + step * 16;
      const uint32_t from = other + step * C::key_tiles * 2 * 512;
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) load_left(left[j], from + j * 2 * 512);
      accumulate<T>(dv, left, columns_of_d_out + row * C::value_pitch);
#pragma unroll
      for (int j = 0; j < C::key_tiles; ++j) load_left(left[j], from + j * 2 * 512 + 512);
      accumulate<T>(dk, left, columns_of_q + row * C::pitch);
    }
  }
}

template <typename C>
__device__ __forceinline__ void keys_body(const GeneralParameters& p, int tiles, unsigned char* memory, int block) {
  using T = typename C::T;
  constexpr int head_columns = C::head_dim / 8 / C::halves, value_columns = C::value_dim / 8 / C::halves;
  volatile Plan& plan = *reinterpret_cast<volatile Plan*>(memory + C::plan);
  const uint32_t k_at = ptx::shared_address(memory), v_at = k_at + C::k_bytes, ring = v_at + C::v_bytes;
  const auto rows_of = [&](const void* tensor, const HeadStrides& stride, int head, int row) {
    return reinterpret_cast<const char*>(static_cast<const T*>(tensor) + plan.batch * stride.batch +
                                         head * stride.head + row * stride.seq);
  };
  // The tile of queries from `begin` on, of the group's query head `member`.
  const auto copy_queries = [&](int stage, int member, int begin) {
    const int thread = ptx::fresh_tid_x();
    const uint32_t to = ring + stage * C::stage_bytes;
    const int head = plan.head * p.group + member, rows = plan.seq_q - begin, first = plan.first_q + begin;
    copy_tile<C::block_m, C::head_dim, C::threads>(to, rows_of(p.q, p.q_stride, head, first), p.q_stride.seq * 2, rows,
                                                   padded(p.head_dim), thread);
    copy_tile<C::block_m, C::value_dim, C::threads>(to + C::q_bytes, rows_of(p.d_out, p.d_out_stride, head, first),
                                                    p.d_out_stride.seq * 2, rows, padded(p.value_dim), thread);
    const int64_t row = plan.batch * p.row_stride.batch + head * p.row_stride.head + first;
    copy_floats<C::block_m>(to + C::q_bytes + C::d_out_bytes, p.lse_2 + row, rows, thread);
    copy_floats<C::block_m>(to + C::q_bytes + C::d_out_bytes + C::row_bytes, p.d_sum + row, rows, thread);
  };
  {
    const Place place = Place::of(block, tiles, p.batch * p.kv_heads, p.section);
    const int batch = place.head / p.kv_heads;
    const attention::Span span = attention::span_of(p.options, batch, p.seq_q, p.seq_kv);
    const int first_key = place.tile * C::block_n;
    if (first_key >= span.seq_kv) return;
    const Tiles walk = queries_that_see(span, first_key, C::block_n, C::block_m);
    if (threadIdx.x == 0) Plan::write(plan, batch, place.head % p.kv_heads, span, first_key, walk);
    __syncthreads();
    if (walk.count > 0) {
      const int thread = ptx::fresh_tid_x(), head = plan.head, row = plan.first_kv + first_key;
      copy_tile<C::block_n, C::head_dim, C::threads>(k_at, rows_of(p.k, p.k_stride, head, row), p.k_stride.seq * 2,
                                                     span.seq_kv - first_key, padded(p.head_dim), thread);
      copy_tile<C::block_n, C::value_dim, C::threads>(v_at, rows_of(p.v, p.v_stride, head, row), p.v_stride.seq * 2,
                                                      span.seq_kv - first_key, padded(p.value_dim), thread);
      copy_queries(0, 0, walk.begin);
    }
    ptx::cp_async_commit_group();
  }

  float dk[C::key_tiles][head_columns][4], dv[C::key_tiles][value_columns][4];
#pragma unroll
  for (int i = 0; i < C::key_tiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int n = 0; n < head_columns; ++n) dk[i][n][e] = 0.0f;
#pragma unroll
      for (int n = 0; n < value_columns; ++n) dv[i][n][e] = 0.0f;
    }
  }

  const auto copy_next = [&](int i) {
    const int next = i + 1, count = plan.count;
    if (next < count * p.group) copy_queries(next % C::stages, next / count, plan.begin + next % count * C::block_m);
    ptx::cp_async_commit_group();
  };
  // The one number that is kept in a register: the tile is computed of it in every step.
  for (int i = 0; i < plan.count * p.group; ++i) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    if constexpr (C::stages == 2) copy_next(i);
    keys_step<C>(p, plan, k_at, i % C::stages, plan.begin + i % plan.count * C::block_m, dk, dv);
    if constexpr (C::stages == 1) {
      __syncthreads();
      copy_next(i);
    }
  }
  const int thread = ptx::fresh_tid_x(), warp = thread / 32;
  const int half = C::halves == 1 ? 0 : warp % 2, row = plan.first + warp / C::halves * C::warp_keys;
  const auto gradient = [&](void* tensor, const HeadStrides& stride) {
    return static_cast<T*>(tensor) + plan.batch * stride.batch + plan.head * stride.head + plan.first_kv * stride.seq;
  };
  store(gradient(p.dv, p.dv_stride), p.dv_stride.seq, dv, 1.0f, row, plan.seq_kv, half * value_columns * 8, p.value_dim,
        thread % 32);
  store(gradient(p.dk, p.dk_stride), p.dk_stride.seq, dk, p.scale, row, plan.seq_kv, half * head_columns * 8,
        p.head_dim, thread % 32);
}

}  // namespace cuda_llm_ops::cuda::backward
