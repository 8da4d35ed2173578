// The online softmax of one warp over tiles of 16 rows x 16 keys, with the sums of the weighted values.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/cvt.cuh"
#include "../../ptx/ex2.cuh"
#include "sequences.cuh"

namespace cuda_llm_ops::cuda::decode {

template <typename T, int HeadDim>
struct Softmax {
  float o[HeadDim / 8][4];   // rows g and g + 8, columns 8 j + 2 t and the next
  float maximum[2], sum[2];  // of scores before the scale; of this lane's keys

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < HeadDim / 8; ++j) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }

  // Scores of 16 rows x 16 keys become weights, packed as the left operand of the product with the values.
  __device__ __forceinline__ void weigh(float (&s)[2][4], float scale_log2, uint32_t (&weights)[4]) {
    float top[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
      float most = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      top[h] = fmaxf(most, maximum[h]);
    }
    if (__any_sync(kAllLanes, top[0] > maximum[0] || top[1] > maximum[1])) {
      float shrink[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shrink[h] = top[h] > maximum[h] ? ptx::ex2((maximum[h] - top[h]) * scale_log2) : 1.0f;
        sum[h] *= shrink[h];
        maximum[h] = top[h];
      }
#pragma unroll
      for (int j = 0; j < HeadDim / 8; ++j) {
        o[j][0] *= shrink[0], o[j][1] *= shrink[0];
        o[j][2] *= shrink[1], o[j][3] *= shrink[1];
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = maximum[h] == -INFINITY ? 0.0f : maximum[h] * scale_log2;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float& low = s[n][2 * h];
        float& high = s[n][2 * h + 1];
        low = ptx::ex2(fmaf(low, scale_log2, -base));
        high = ptx::ex2(fmaf(high, scale_log2, -base));
        weights[2 * n + h] = ptx::cvt_rn_x2<T>(low, high);
        const float2 rounded = unpack_pair<T>(weights[2 * n + h]);
        sum[h] += rounded.x + rounded.y;
      }
    }
  }
};

}  // namespace cuda_llm_ops::cuda::decode
