// Online softmax over the scores that wgmma leaves in registers.
//
// Scores s[64 x N] of a warpgroup: this thread holds rows r = 16 warp + lane / 4 and r + 8, and of each 8-column group
// j the columns 8 j + 2 (lane % 4) and the next: s[4 j + 2 * (row half) + (column parity)].
// Scores stay unscaled; c = scale * log2(e) is folded into the exponent: exp(scale (s - max)) = 2^(s c - max c).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../ptx/ex2.cuh"

namespace cuda_llm_ops::cuda::sm90 {

constexpr float minus_infinity = -__builtin_inff();

struct RowState {
  float maximum[2];  // of the scores seen, unscaled; NaN once a score was NaN
  float sum[2];      // of this thread's columns only, until finish()

  __device__ __forceinline__ void reset() {
    maximum[0] = maximum[1] = minus_infinity;
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

// 2^t for t = s c - shift <= 0 on the FMA pipe, which has time left where the special-function unit has none.
// u = t / 127 + 1 saturates to [0, 1], which clamps t at -127, where the result is exactly 0.
// Adding 1.5 * 2^23 rounds to an integer n in the low mantissa bits; 2^(t - n), |t - n| <= 1/2, is the minimax cubic
// with constant term 1 (relative error 1.0e-4, rms 0.7e-4; the fp16 that it becomes rounds by up to 4.9e-4); n goes to
// the exponent. A NaN score is lost here: the row's maximum carries it (see finish()).
__device__ __forceinline__ float exp2_on_fma(float s, float c_over_127, float one_minus_shift_over_127) {
  const float u = __saturatef(fmaf(s, c_over_127, one_minus_shift_over_127));
  constexpr float round = 12582912.0f;
  const float r = fmaf(u, 127.0f, round - 127.0f);
  const float f = fmaf(u, 127.0f, (round - 127.0f) - r);
  float y = fmaf(f, 0.0550089329f, 0.242210969f);
  y = fmaf(f, y, 0.693282902f);
  y = fmaf(f, y, 1.0f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(r) << 23));
}

// -inf where the column is at or past the row's limit (limits relative to this thread's first column).
template <int N>
__device__ __forceinline__ void mask_scores(float (&s)[N], int limit0, int limit1) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int column = 8 * (i / 4) + i % 2;
    if (column >= (i % 4 < 2 ? limit0 : limit1)) s[i] = minus_infinity;
  }
}

// Takes a block of scores: s becomes 2^(s c - max c), the state its new maximum and sum; rescale[] is what the sums
// and outputs so far were to be multiplied by (the sums are). `Polynomial` of 16 exponentials go to the FMA pipe.
template <int Polynomial, int N>
__device__ __forceinline__ void online_softmax(float (&s)[N], RowState& state, float (&rescale)[2], float c) {
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
    state.maximum[h] = ptx::max_nan(previous, quad_max(ptx::max_nan(even, odd)));
    // A row that has seen only -inf: any finite shift gives the 0 that each term is.
    const float shift = (state.maximum[h] == minus_infinity ? 0.0f : state.maximum[h]) * c;
    rescale[h] = ptx::ex2(fmaf(previous, c, -shift));
    const float c_over_127 = c * (1.0f / 127.0f);
    const float one_minus_shift_over_127 = fmaf(shift, -1.0f / 127.0f, 1.0f);
    float sum_even = 0.0f, sum_odd = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const int e = i + 2 * h + parity;
        const int position = (i / 4) * 2 + parity;
        if ((position * Polynomial) % 16 < Polynomial) {
          s[e] = exp2_on_fma(s[e], c_over_127, one_minus_shift_over_127);
        } else {
          s[e] = ptx::ex2(fmaf(s[e], c, -shift));
        }
        if (parity == 0) {
          sum_even += s[e];
        } else {
          sum_odd += s[e];
        }
      }
    }
    state.sum[h] = fmaf(state.sum[h], rescale[h], sum_even + sum_odd);
  }
}

__device__ __forceinline__ uint32_t pack(__half, float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ uint32_t pack(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The block's weights as A fragments of wgmma, one per 16 keys: a change of type, not of place.
template <typename T, int N>
__device__ __forceinline__ void pack_weights(uint32_t (&p)[N / 8][4], const float (&s)[N]) {
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[k][i] = pack(T{}, s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
  }
}

template <int N>
__device__ __forceinline__ void rescale_output(float (&o)[N], const float (&rescale)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) o[i] *= rescale[i % 4 / 2];
}

// 1 / the row's sum over all columns. A NaN or infinite maximum makes it NaN, as inf - inf does in the plain formula
// (0 * maximum is 0 otherwise).
__device__ __forceinline__ float finish(const RowState& state, int h) {
  return 1.0f / fmaf(0.0f, state.maximum[h], quad_sum(state.sum[h]));
}

}  // namespace cuda_llm_ops::cuda::sm90
