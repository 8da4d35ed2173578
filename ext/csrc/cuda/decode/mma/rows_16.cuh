// Nine to 16 rows: the products are rows x keys, and rows x columns.
#pragma once

#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/shared_address.cuh"
#include "columns.cuh"
#include "rows.cuh"
#include "softmax.cuh"

namespace cuda_llm_ops::cuda::decode {

// Up to 16 rows: scores are rows x keys.
template <typename T, int HeadDim, int Warps, int Groups>
struct Rows<T, HeadDim, Warps, Groups, kRows> : RowsBase<T, HeadDim, Warps, Groups, kRows> {
  using Base = RowsBase<T, HeadDim, Warps, Groups, kRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::shared_q, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count, Base::row_block;

  uint32_t q[shares_queries(HeadDim) ? 1 : HeadDim / 16][4];
  Softmax<T, HeadDim> state;
  int behind[2];  // keys at the end that the queries of rows g and g + 8 do not see

  const T* direct[2];  // rows g and g + 8, where queries do not pass through shared memory

  __device__ __forceinline__ void take(int sequence, int unit_head) {
    Base::take(sequence, unit_head);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      behind[h] = Base::keys_behind(lane / 4 + 8 * h);
      direct[h] = Base::query_at(sequence, lane / 4 + 8 * h);
    }
  }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    if constexpr (shares_queries(HeadDim)) {
      Base::share_queries();
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const T* const from = direct[h];
#pragma unroll
        for (int i = 0; i < HeadDim / 8; ++i) {
          const int d = i * 8 + lane % 4 * 2;
          q[i / 2][i % 2 * 2 + h] =
              row < row_count && d < p.head_dim ? *reinterpret_cast<const uint32_t*>(from + d) : 0u;
        }
      }
    }
    state.clear();
  }

  // A tile of 16 keys, `left` of them (and more behind it) within the length. `k_panels` and `v_panels` are the shared
  // addresses of its first row in the first panel; panels lie panel_bytes apart.
  // Returns bits that depend on everything that was loaded.
  __device__ __forceinline__ uint32_t tile(uint32_t k_panels, uint32_t v_panels, uint32_t panel_bytes, int left) {
    // ldmatrix: of the keys lanes 0-15 address rows 0-7 (two chunks), 16-31 rows 8-15; of the values, which it
    // transposes, lanes 0-15 rows 0-15 and 16-31 the same in the next chunk.
    const uint32_t k_lane = k_panels + chunk_offset((lane / 16) * 8 + lane % 8, lane / 8 % 2);
    const uint32_t v_lane = v_panels + chunk_offset(lane % 16, lane / 16);
    const uint32_t q_lane = ptx::shared_address(shared_q) + chunk_offset(lane % 16, lane / 16);
    float s[2][4] = {}, odd[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < HeadDim / 16; ++kk) {
      uint32_t keys[4], loaded[4];
      ptx::ldmatrix_x4(keys, (k_lane + kk / 4 * panel_bytes) ^ (kk % 4 * 32));
      if constexpr (shares_queries(HeadDim)) {
        ptx::ldmatrix_x4(loaded, (q_lane + kk / 4 * (kRows * 128)) ^ (kk % 4 * 32));
      }
      const uint32_t (&queries)[4] = shares_queries(HeadDim) ? loaded : q[shares_queries(HeadDim) ? 0 : kk];
      ptx::mma_sync_m16n8k16<T>(kk % 2 == 0 ? s[0] : odd[0], queries, keys[0], keys[1]);
      ptx::mma_sync_m16n8k16<T>(kk % 2 == 0 ? s[1] : odd[1], queries, keys[2], keys[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] += odd[n][e];
    }
    if (left - (p.seq_q - 1) < kTileKeys) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (n * 8 + lane % 4 * 2 + e % 2 >= left - behind[e / 2]) s[n][e] = -INFINITY;
        }
      }
    }
    uint32_t weights[4];
    state.weigh(s, p.scale_log2, weights);
    uint32_t all = 0;
#pragma unroll
    for (int dd = 0; dd < HeadDim / 16; ++dd) {
      uint32_t values[4];
      ptx::ldmatrix_x4_trans(values, (v_lane + dd / 4 * panel_bytes) ^ (dd % 4 * 32));
      all = values[0];  // loads from shared memory come back in order
      ptx::mma_sync_m16n8k16<T>(state.o[2 * dd], weights, values[0], values[1]);
      ptx::mma_sync_m16n8k16<T>(state.o[2 * dd + 1], weights, values[2], values[3]);
    }
    return all;
  }

  // The largest score of a row, scaled, in units of log2.
  __device__ __forceinline__ float top(int h) const {
    return state.maximum[h] == -INFINITY ? -INFINITY : state.maximum[h] * p.scale_log2;
  }

  // The warp's sums, under these largest scores, for the others to read.
  __device__ __forceinline__ void store_sums(int slot, const float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 1);
      state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 2);
      const int row = lane / 4 + 8 * h;
      if (row < row_count) {
        float* const to = merge + (slot * p.rows + row) * pitch + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < HeadDim / 8; ++j) {
          *reinterpret_cast<float2*>(to + 8 * j) = make_float2(state.o[j][2 * h], state.o[j][2 * h + 1]);
        }
        if (lane % 4 == 0) merge_stats[slot * kRows + row] = make_float2(tops[h], state.sum[h]);
      }
    }
  }

  // Adds what another warp stored. Each lane reads what the same lane of the other wrote.
  __device__ __forceinline__ void add_sums(int slot, float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane / 4 + 8 * h;
      if (row < row_count) {
        const float2 stats = merge_stats[slot * kRows + row];
        const float* const from = merge + (slot * p.rows + row) * pitch + lane % 4 * 2;
        const float common = fmaxf(tops[h], stats.x);
        const float own = part_weight(tops[h], common), other = part_weight(stats.x, common);
        state.sum[h] = state.sum[h] * own + (lane % 4 == 0 ? stats.y * other : 0.0f);
        tops[h] = common;
#pragma unroll
        for (int j = 0; j < HeadDim / 8; ++j) {
          const float2 part = *reinterpret_cast<const float2*>(from + 8 * j);
          state.o[j][2 * h] = state.o[j][2 * h] * own + part.x * other;
          state.o[j][2 * h + 1] = state.o[j][2 * h + 1] * own + part.y * other;
        }
      }
    }
    __syncwarp();
  }
};

}  // namespace cuda_llm_ops::cuda::decode
