// From packed integers to the 16-bit elements of a mma.sync fragment, exactly, in registers. The number becomes the low
// bits of the mantissa of a large power of two, and one subtraction takes the power and the zero point away.
//
// In bfloat16 there is a way with fewer instructions, whose results are 1/64 of the numbers. The low eight bits of a
// bfloat16 whose other bits are 0 are an integer times 2^-133: a subnormal has seven of them, and the lowest bit of the
// exponent goes on evenly. So a mask is enough, also for the upper four bits of a byte, and one multiplication by 2^127
// (2^123 for these) with one subtraction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "../ptx/lop3.cuh"

namespace cuda_llm_ops::cuda::weight_only {

template <typename T>
constexpr bool is_half = std::is_same_v<T, __half>;

__device__ __forceinline__ uint32_t minus(__half, uint32_t a, uint32_t b) {
  const __half2 out = __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&out);
}
__device__ __forceinline__ uint32_t minus(__nv_bfloat16, uint32_t a, uint32_t b) {
  const __nv_bfloat162 out =
      __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&out);
}

// What is taken from numbers of a row of the fragment: 2^10 or 2^7 plus the zero point, twice; for the numbers that
// stay 4 bits higher in a half, minus (64 + zero).
template <typename T>
__device__ __forceinline__ uint32_t offset_low(uint32_t zero) {
  const uint32_t one = (is_half<T> ? 0x6400u : 0x4300u) | zero;
  return one | one << 16;
}
template <typename T>
__device__ __forceinline__ uint32_t offset_high(uint32_t zero) {
  if constexpr (is_half<T>) {
    const uint32_t one = 0xd400u | zero << 4;  // -64 - zero: units of 1/16 in the mantissa of 64
    return one | one << 16;
  } else {
    return offset_low<T>(zero);
  }
}

// Eight 4-bit numbers, less the zero points of rows g (offset_low) and g + 8 (offset_high).
template <typename T>
__device__ __forceinline__ void widen_4(uint32_t word, uint32_t low, uint32_t high, uint32_t (&a)[4]) {
  if constexpr (is_half<T>) {
    const __half2 sixteenth = __half2half2(__ushort_as_half(0x2c00));
    const __half2 taken = *reinterpret_cast<const __half2*>(&high);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t shifted = word >> (8 * pair);
      a[2 * pair] = minus(T{}, ptx::masked_or<0x000f000fu, 0x64006400u>(shifted), low);
      const uint32_t above = ptx::masked_or<0x00f000f0u, 0x64006400u>(shifted);  // 1024 + 16 q
      const __half2 number = __hfma2(*reinterpret_cast<const __half2*>(&above), sixteenth, taken);
      a[2 * pair + 1] = *reinterpret_cast<const uint32_t*>(&number);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = minus(T{}, ptx::masked_or<0x000f000fu, 0x43004300u>(word >> (4 * i)), i % 2 == 0 ? low : high);
    }
  }
}

// What widened numbers are in units of: `fewer` are made by the way of fewer instructions.
template <typename T>
constexpr float fewer_unit = is_half<T> ? 1.0f : 1.0f / 64.0f;

__device__ __forceinline__ uint32_t times_minus(uint32_t a, uint32_t times, uint32_t minus) {
  const auto of = [](uint32_t& bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); };
  const __nv_bfloat162 out = __hfma2(of(a), of(times), of(minus));
  return *reinterpret_cast<const uint32_t*>(&out);
}

template <typename T>
__device__ __forceinline__ uint32_t fewer_low(uint32_t zero) {
  if constexpr (is_half<T>) return offset_low<T>(zero);
  return times_minus(zero | zero << 16, 0xff00ff00u, 0x80008000u);  // zero * 2^-133 * -2^127
}
template <typename T>
__device__ __forceinline__ uint32_t fewer_high(uint32_t zero) {
  if constexpr (is_half<T>) return offset_high<T>(zero);
  return fewer_low<T>(zero);
}

// Eight 4-bit numbers, less the zero points of rows g (fewer_low) and g + 8 (fewer_high), times fewer_unit.
template <typename T>
__device__ __forceinline__ void widen_4_fewer(uint32_t word, uint32_t low, uint32_t high, uint32_t (&a)[4]) {
  if constexpr (is_half<T>) {
    widen_4<T>(word, low, high, a);
  } else {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t shifted = word >> (8 * pair);
      a[2 * pair] = times_minus(shifted & 0x000f000fu, 0x7f007f00u, low);
      a[2 * pair + 1] = times_minus(shifted & 0x00f000f0u, 0x7d007d00u, high);
    }
  }
}

// Eight signed bytes of two words.
template <typename T>
__device__ __forceinline__ void widen_8(uint32_t first, uint32_t second, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bytes = (i < 2 ? first : second) >> (8 * (i % 2));
    if constexpr (is_half<T>) {
      a[i] = minus(T{}, ptx::masked_xor<0x00ff00ffu, 0x64806480u>(bytes), 0x64806480u);  // 1024 + 128 + q, less 1152
    } else {
      // 128 + the low seven bits, less 128 or, where the sign bit raises the exponent, 256.
      a[i] =
          minus(T{}, ptx::masked_or<0x007f007fu, 0x43004300u>(bytes), ptx::masked_or<0x00800080u, 0x43004300u>(bytes));
    }
  }
}

// The same times fewer_unit.
template <typename T>
__device__ __forceinline__ void widen_8_fewer(uint32_t first, uint32_t second, uint32_t (&a)[4]) {
  if constexpr (is_half<T>) {
    widen_8<T>(first, second, a);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t bytes = (i < 2 ? first : second) >> (8 * (i % 2));
      a[i] = times_minus(ptx::masked_xor<0x00ff00ffu, 0x00800080u>(bytes), 0x7f007f00u,
                         0xc000c000u);  // (q + 128) / 64 - 2
    }
  }
}

}  // namespace cuda_llm_ops::cuda::weight_only
