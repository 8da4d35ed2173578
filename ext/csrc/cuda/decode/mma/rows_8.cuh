// Up to eight rows: the products are transposed, keys x rows and columns x rows. Then no half of a product is empty,
// and the queries fit in registers.
#pragma once

#include <cfloat>
#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/movmatrix.cuh"
#include "../../ptx/shared_address.cuh"
#include "columns.cuh"
#include "rows.cuh"

namespace cuda_llm_ops::cuda::decode {

template <typename T, int HeadDim, int Warps, int Groups>
struct Rows<T, HeadDim, Warps, Groups, kFewRows> : RowsBase<T, HeadDim, Warps, Groups, kFewRows> {
  using Base = RowsBase<T, HeadDim, Warps, Groups, kFewRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::shared_q, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count;

  // Weights are at most 2 to this: what a 16-bit float holds, and what all keys add up to, is far above.
  static constexpr float kHeadroom = 8.0f;

  uint32_t q[HeadDim / 16][2];
  float o[HeadDim / 16][4];  // columns 16 i + g (two) and 16 i + 8 + g, rows 2 t and the next
  float base[2], sum[2];     // of rows 2 t and the next: of what weights are powers, in log2; of this lane's keys
  int behind[2];             // keys at the end that their queries do not see

  __device__ __forceinline__ void take(int sequence, int unit_head) {
    Base::take(sequence, unit_head);
#pragma unroll
    for (int h = 0; h < 2; ++h) behind[h] = Base::keys_behind(lane % 4 * 2 + h);
  }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    Base::share_queries();
    const uint32_t q_lane = ptx::shared_address(shared_q) + chunk_offset(lane % 8, lane / 8);
#pragma unroll
    for (int kk = 0; kk < HeadDim / 16; kk += 2) {
      uint32_t loaded[4];
      ptx::ldmatrix_x4(loaded, (q_lane + kk / 4 * (kFewRows * 128)) ^ (kk % 4 * 32));
      q[kk][0] = loaded[0], q[kk][1] = loaded[1], q[kk + 1][0] = loaded[2], q[kk + 1][1] = loaded[3];
    }
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    base[0] = base[1] = -FLT_MAX;
    sum[0] = sum[1] = 0.0f;
  }

  // A tile of 16 keys, as above. All rows see all keys of a whole one.
  template <bool Whole>
  __device__ __forceinline__ uint32_t tile(uint32_t k_panels, uint32_t v_panels, uint32_t panel_bytes, int left) {
    const uint32_t k_lane = k_panels + chunk_offset(lane % 16, lane / 16);
    const uint32_t v_lane = v_panels + chunk_offset((lane / 16) * 8 + lane % 8, lane / 8 % 2);
    uint32_t keys[HeadDim / 16][4];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) ptx::ldmatrix_x4(keys[i], (k_lane + i / 4 * panel_bytes) ^ (i % 4 * 32));
    float s[4][4] = {};  // four chains of products: each waits for the one before it
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) ptx::mma_sync_m16n8k16<T>(s[i % 4], keys[i], q[i][0], q[i][1]);
    uint32_t values[HeadDim / 16][4];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) {
      ptx::ldmatrix_x4_trans(values[i], (v_lane + i / 4 * panel_bytes) ^ (i % 4 * 32));
    }
    float score[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) score[e] = (s[0][e] + s[1][e]) + (s[2][e] + s[3][e]);
    if (!Whole && left - (p.seq_q - 1) < kTileKeys) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e / 2 * 8 + lane / 4 >= left - behind[e % 2]) score[e] = -INFINITY;
      }
    }
    uint32_t weights[2];
    weigh(score, weights);
    uint32_t loaded = weights[0];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) {
      ptx::mma_sync_m16n8k16<T>(o[i], values[i], weights[0], weights[1]);
      loaded |= values[i][0];
    }
    return loaded;
  }

  // Scores of 16 keys x 8 rows become weights, packed as the right operand of the product with the values. They are
  // powers of a score that was the largest of an earlier tile: only where one is larger by the headroom does it move.
  __device__ __forceinline__ void weigh(float (&score)[4], uint32_t (&weights)[2]) {
    float power[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) power[e] = fmaf(score[e], p.scale_log2, -base[e % 2]);
    // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
    const float most = fmaxf(fmaxf(power[0], power[1]), fmaxf(power[2], power[3]));
    if (__any_sync(kAllLanes, most > kHeadroom)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = fmaxf(score[h], score[2 + h]);
#pragma unroll
        for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
        top = fmaxf(base[h], top * p.scale_log2);
        const float shrink = ptx::ex2(base[h] - top);
        base[h] = top;
        sum[h] *= shrink;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) o[i][h] *= shrink, o[i][2 + h] *= shrink;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) power[e] = fmaf(score[e], p.scale_log2, -base[e % 2]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) power[e] = ptx::ex2(power[e]);
    // The sum of the weights as they are multiplied: where one key has nearly all the weight, its rounding cancels.
    const uint32_t first = ptx::cvt_rn_x2<T>(power[0], power[1]), second = ptx::cvt_rn_x2<T>(power[2], power[3]);
    const float2 one = unpack_pair<T>(first), other = unpack_pair<T>(second);
    sum[0] += one.x + other.x;
    sum[1] += one.y + other.y;
    weights[0] = ptx::movmatrix_trans(first);
    weights[1] = ptx::movmatrix_trans(second);
  }

  // As above.
  __device__ __forceinline__ float top(int h) const { return base[h]; }

  __device__ __forceinline__ void store_sums(int slot, const float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum[h] += __shfl_xor_sync(kAllLanes, sum[h], step);
      const int row = lane % 4 * 2 + h;
      if (row < row_count) {
        float* const to = merge + (slot * p.rows + row) * pitch + lane / 4;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) to[16 * i] = o[i][h], to[16 * i + 8] = o[i][2 + h];
        if (lane / 4 == 0) merge_stats[slot * kRows + row] = make_float2(tops[h], sum[h]);
      }
    }
  }

  __device__ __forceinline__ void add_sums(int slot, float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane % 4 * 2 + h;
      if (row < row_count) {
        const float2 stats = merge_stats[slot * kRows + row];
        const float* const from = merge + (slot * p.rows + row) * pitch + lane / 4;
        const float common = fmaxf(tops[h], stats.x);
        const float own = part_weight(tops[h], common), other = part_weight(stats.x, common);
        sum[h] = sum[h] * own + (lane / 4 == 0 ? stats.y * other : 0.0f);
        tops[h] = common;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) {
          o[i][h] = o[i][h] * own + from[16 * i] * other;
          o[i][2 + h] = o[i][2 + h] * own + from[16 * i + 8] * other;
        }
      }
    }
    __syncwarp();
  }
};

}  // namespace cuda_llm_ops::cuda::decode
