// From values to FP8 numbers: quotients by a shared scale, and their rounding.
#pragma once

#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>

#include "../../fp8.h"

namespace cuda_llm_ops::cuda::fp8 {

// Magnitudes as integers: they order as their numbers do, and NaN lies above infinity.
__device__ __forceinline__ unsigned magnitude(float value) { return __float_as_uint(fabsf(value)); }

// Values over one scale, in float32, from one reciprocal. The product with it is at most two units in the last place
// off; a step adds what the remainder is worth. After one step a quotient is that of a division unless it lies within
// 2^-45 of itself of the middle between two floats; after two it always is. FP8 numbers care only next to their own
// middles, where no quotient of a 16-bit value is so close (test_fp8_quantise_rows.py tries them all). So values that
// have 16 bits take one step. What was rounded on its way, by more than the product is off, takes none.
template <int Steps>
class Quotients {
 public:
  // `factor`: of the values, whose scale has it already.
  __device__ __forceinline__ explicit Quotients(float scale, float factor = 1.0f)
      : zero_(scale == 0.0f), tiny_(scale < 0x1p-80f) {
    // Over infinity finite values are zeros and infinite ones NaN, as a reciprocal of zero makes them.
    divisor_ = scale == INFINITY ? 0.0f : tiny_ ? scale * kLift : scale;
    inverse_ = divisor_ == 0.0f ? 0.0f : __frcp_rn(divisor_);
    if constexpr (Steps == 0) inverse_ *= factor;
  }

  // `Count` values over the scale.
  template <int Count>
  __device__ __forceinline__ void divide(float (&y)[Count]) const {
    if (tiny_) {  // a remainder must not underflow, and a power of two changes no quotient
#pragma unroll
      for (float& value : y) value *= kLift;
    }
#pragma unroll
    for (float& value : y) {
      // Signs are such that the quotient of a negative zero is one.
      float quotient = value * inverse_;
#pragma unroll
      for (int step = 0; step < Steps; ++step) {
        quotient = fmaf(-fmaf(quotient, divisor_, -value), inverse_, quotient);
      }
      value = quotient;
    }
  }
  // A scale of zero has numbers of zero.
  __device__ __forceinline__ bool zero() const { return zero_; }

 private:
  static constexpr float kLift = 0x1p100f;
  float divisor_, inverse_;
  bool zero_, tiny_;
};

// Two numbers rounded to nearest, ties to even, and held within the range; the first in the lower bits.
template <Fp8Type To>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, To == Fp8Type::e4m3 ? __NV_E4M3 : __NV_E5M2);
#else
  constexpr int kDropped = To == Fp8Type::e4m3 ? 20 : 21;  // bits of a mantissa
  constexpr int kBias = To == Fp8Type::e4m3 ? 7 : 15;
  constexpr float kTop = To == Fp8Type::e4m3 ? 448.0f : 57344.0f;
  constexpr float kLeastNormal = To == Fp8Type::e4m3 ? 0x1p-6f : 0x1p-14f;
  // The last bit of this sum's mantissa is worth the smallest number.
  constexpr float kShift = To == Fp8Type::e4m3 ? 0x1p14f : 0x1p7f;
  uint32_t pair = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float value = i == 0 ? low : high;
    const float size = fminf(fabsf(value), kTop);
    const uint32_t bits = __float_as_uint(size);
    const uint32_t normal =
        ((bits + (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1)) >> kDropped) - ((127 - kBias) << (23 - kDropped));
    const uint32_t small = __float_as_uint(size + kShift) - __float_as_uint(kShift);
    uint32_t number = size < kLeastNormal ? small : normal;
    number |= __float_as_uint(value) >> 24 & 0x80;
    if (value != value) number = 0x7f;
    pair |= number << 8 * i;
  }
  return pair;
#endif
}

// `Count` values over a scale as numbers, four a word.
template <int Count, int Steps>
__device__ __forceinline__ void to_numbers(uint32_t (&words)[Count / 4], float (&y)[Count],
                                           const Quotients<Steps>& quotients, Fp8Type to) {
  quotients.divide(y);
#pragma unroll
  for (int i = 0; i < Count / 4; ++i) {
    const float* const four = y + 4 * i;
    const uint32_t word =
        to == Fp8Type::e4m3
            ? round_pair<Fp8Type::e4m3>(four[0], four[1]) | round_pair<Fp8Type::e4m3>(four[2], four[3]) << 16
            : round_pair<Fp8Type::e5m2>(four[0], four[1]) | round_pair<Fp8Type::e5m2>(four[2], four[3]) << 16;
    words[i] = quotients.zero() ? 0 : word;
  }
}

}  // namespace cuda_llm_ops::cuda::fp8
