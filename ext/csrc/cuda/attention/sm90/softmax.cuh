// Online softmax over the scores that wgmma leaves in registers.
//
// Scores s[64 x N] of a warpgroup: this thread holds rows r = 16 warp + lane / 4 and r + 8, and of each 8-column group
// j the columns 8 j + 2 (lane % 4) and the next: s[4 j + 2 * (row half) + (column parity)].
// Scores stay unscaled; c = scale * log2(e) > 0 is folded into the exponent: exp(scale (s - max)) = 2^(s c - max c).
// A value that leaves the range of float32 on the way, s c above all, is infinite and counts as an infinite score.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/ex2.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

constexpr float kMinusInfinity = -__builtin_inff();

struct RowState {
  float maximum[2];  // of the scores seen, times c; NaN once a score was NaN
  float sum[2];      // of this thread's columns only, until finish(); unless the product sums

  __device__ __forceinline__ void reset() {
    maximum[0] = maximum[1] = kMinusInfinity;
    sum[0] = sum[1] = 0.0f;
  }
};

__device__ __forceinline__ float quad_max(float x) {
  x = ptx::max_nan(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return ptx::max_nan(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// The number to subtract from s c. In a row that has seen only -inf, any finite shift gives weights of 0.
__device__ __forceinline__ float shift_of(float maximum) { return maximum == kMinusInfinity ? 0.0f : maximum; }

// Sets scores to -inf if their column is at or past the row's limit; limits are relative to this thread's first column.
// half: only in the first half of the columns. Realigned: the columns of 64 are keys in another order (realigned_row()
// of eight_rows.cuh).
template <bool Realigned = false, int N>
__device__ __forceinline__ void mask_scores(float (&s)[N], int limit0, int limit1, bool half = false) {
  const auto mask = [&](int i) {
    const int column = Realigned ? i / 32 * 64 + i / 4 % 8 + i % 2 * 8 : 8 * (i / 4) + i % 2;
    if (column >= (i % 4 < 2 ? limit0 : limit1)) s[i] = kMinusInfinity;
  };
#pragma unroll
  for (int i = 0; i < N / 2; ++i) mask(i);
  if (!half) {
#pragma unroll
    for (int i = N / 2; i < N; ++i) mask(i);
  }
}

// The weights of a block against the maximum of earlier blocks: without looking for a maximum at all. `s` stays as it
// is. False, with nothing changed but `p`, where a sum is so large that a weight may not fit its type, is infinite or
// NaN: then take_block() does it with the block's own maximum. A sum of at most 2^14 bounds each weight by it, and a
// weight is as exact relative to itself at 2^14 as at 1; a row that has seen only -inf gives NaN or infinity here.
//
// Without Sum the row sums come with the product (a column of ones in V): the largest weight is looked for instead, in
// half as many registers, three at a time.
template <typename T, bool Sum = true, int N>
__device__ __forceinline__ bool try_block(uint32_t (&p)[N / 8][4], const float (&s)[N], RowState& state, float c) {
  constexpr float limit = 16384.0f;
  if constexpr (!Sum) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float shift = state.maximum[i % 4 / 2];
      p[i / 8][i % 8 / 2] = pack_pair<T>(ptx::ex2(fmaf(s[i], c, -shift)), ptx::ex2(fmaf(s[i + 1], c, -shift)));
    }
    // Weights are never negative: as integers they are in the same order, infinity and NaN above all.
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      most = ptx::max3_s16x2(most, p[i][0], p[i][1]);
      most = ptx::max3_s16x2(most, p[i][2], p[i][3]);
    }
    const uint32_t most_allowed = pack_pair<T>(limit, limit);
    return __all_sync(0xffffffffu, ptx::max3_s16x2(most, most_allowed, most_allowed) == most_allowed);
  }
  float sum[2][2] = {};
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int h = i % 4 / 2;
    float e[2];
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      e[parity] = ptx::ex2(fmaf(s[i + parity], c, -state.maximum[h]));
      sum[h][parity] = i < 4 ? e[parity] : sum[h][parity] + e[parity];
    }
    p[i / 8][i % 8 / 2] = pack_pair<T>(e[0], e[1]);
  }
  const float sum0 = sum[0][0] + sum[0][1], sum1 = sum[1][0] + sum[1][1];
  if (!__all_sync(0xffffffffu, sum0 <= limit && sum1 <= limit)) return false;
  state.sum[0] += sum0;
  state.sum[1] += sum1;
  return true;
}

// The weights of a block relative to the maximum of all so far. rescale[]: factors for the outputs so far.
template <typename T, bool Sum = true, int N>
__device__ __forceinline__ void take_block(uint32_t (&p)[N / 8][4], const float (&s)[N], RowState& state,
                                           float (&rescale)[2], float c) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float even = ptx::max_nan(s[2 * h], s[2 * h + 4]);
    float odd = ptx::max_nan(s[2 * h + 1], s[2 * h + 5]);
#pragma unroll
    for (int i = 8; i < N; i += 4) {
      even = ptx::max_nan(even, s[i + 2 * h]);
      odd = ptx::max_nan(odd, s[i + 2 * h + 1]);
    }
    const float previous = state.maximum[h];
    state.maximum[h] = ptx::max_nan(previous, quad_max(ptx::max_nan(even, odd)) * c);
    const float shift = shift_of(state.maximum[h]);
    rescale[h] = ptx::ex2(previous - shift);
    float sum[2] = {};
#pragma unroll
    for (int i = 2 * h; i < N; i += 4) {
      float e[2];
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        e[parity] = ptx::ex2(fmaf(s[i + parity], c, -shift));
        if constexpr (Sum) sum[parity] += e[parity];
      }
      p[i / 8][i % 8 / 2] = pack_pair<T>(e[0], e[1]);
    }
    if constexpr (Sum) state.sum[h] = fmaf(state.sum[h], rescale[h], sum[0] + sum[1]);
  }
}

// The same for the first block that a row sees, of weights that the product sums. half: all columns of the second half
// are masked, and not looked at.
template <typename T, int N>
__device__ __forceinline__ void take_first_block(uint32_t (&p)[N / 8][4], const float (&s)[N], RowState& state, float c,
                                                 bool half) {
  float largest[4];  // of the upper row's even and odd columns, and of the lower's
#pragma unroll
  for (int i = 0; i < 4; ++i) largest[i] = ptx::max_nan(s[i], s[i + 4]);
#pragma unroll
  for (int i = 8; i < N / 2; ++i) largest[i % 4] = ptx::max_nan(largest[i % 4], s[i]);
  if (!half) {
#pragma unroll
    for (int i = N / 2; i < N; ++i) largest[i % 4] = ptx::max_nan(largest[i % 4], s[i]);
  }
  float shift[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.maximum[h] = quad_max(ptx::max_nan(largest[2 * h], largest[2 * h + 1])) * c;
    shift[h] = shift_of(state.maximum[h]);
  }
  const auto take = [&](int i) {
    const int h = i % 4 / 2;
    p[i / 8][i % 8 / 2] = pack_pair<T>(ptx::ex2(fmaf(s[i], c, -shift[h])), ptx::ex2(fmaf(s[i + 1], c, -shift[h])));
  };
#pragma unroll
  for (int i = 0; i < N / 2; i += 2) take(i);
  if (!half) {
#pragma unroll
    for (int i = N / 2; i < N; i += 2) take(i);
  } else {
#pragma unroll
    for (int i = N / 2; i < N; i += 2) p[i / 8][i % 8 / 2] = 0;
  }
}

template <int N>
__device__ __forceinline__ void rescale_output(float (&o)[N], const float (&rescale)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) o[i] *= rescale[i % 4 / 2];
}

// Adds the row state of another part of the keys. own, other: factors for the outputs of either part.
__device__ __forceinline__ void join(float& maximum, float& sum, float other_maximum, float other_sum, float& own,
                                     float& other) {
  const float joint = ptx::max_nan(maximum, other_maximum);
  const float shift = shift_of(joint);
  own = ptx::ex2(maximum - shift);
  other = ptx::ex2(other_maximum - shift);
  maximum = joint;
  sum = sum * own + other_sum * other;
}

// Factor of the row's output: 1 / the sum over all columns. If every score is -inf, all weights are 0 and stay 0, as in
// scaled_dot_product_attention. A maximum of NaN or +inf made the sum NaN, or 0 (if only its product with c was
// infinite); the output then is 0 / 0, as inf - inf is NaN in the plain formula.
__device__ __forceinline__ float finish(float maximum, float sum) {
  return maximum == kMinusInfinity ? 1.0f : 1.0f / sum;
}

__device__ __forceinline__ float finish(const RowState& state, int h) {
  return finish(state.maximum[h], quad_sum(state.sum[h]));
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
