// 8-bit floating-point numbers on the CPU: e4m3 (no infinity, one NaN of each sign) and e5m2 (as IEEE), to and from
// float32. Rounding is to nearest, ties to even, and what is too large becomes the largest number.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "../fp8.h"

namespace cuda_llm_ops::cpu {

struct Fp8Format {
  int mantissa, bias;
  float largest;
};

constexpr Fp8Format fp8_format(Fp8Type type) {
  return type == Fp8Type::e4m3 ? Fp8Format{3, 7, 448.0f} : Fp8Format{2, 15, 57344.0f};
}

// The float that each byte stands for.
inline std::array<float, 256> fp8_numbers(Fp8Type type) {
  const Fp8Format format = fp8_format(type);
  const int steps = 1 << format.mantissa;
  std::array<float, 256> all{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte % 128 / steps, mantissa = byte % steps;
    const int significand = exponent == 0 ? mantissa : steps + mantissa;
    float size = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - format.bias - format.mantissa);
    if (type == Fp8Type::e4m3 && byte % 128 == 127) size = std::numeric_limits<float>::quiet_NaN();
    if (type == Fp8Type::e5m2 && exponent == 31) {
      size = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    }
    all[static_cast<size_t>(byte)] = byte < 128 ? size : -size;
  }
  return all;
}

inline uint8_t to_fp8(float value, Fp8Type type) {
  const Fp8Format format = fp8_format(type);
  const int sign = std::signbit(value) ? 128 : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 127);
  const float size = std::min(std::fabs(value), format.largest);
  if (size == 0.0f) return static_cast<uint8_t>(sign);
  int exponent = 0;
  std::frexp(size, &exponent);  // size = [0.5, 1) 2^exponent
  const int biased = std::max(exponent - 1 + format.bias, 1);
  // In units of the last place: exact, then rounded. A carry into the next power of two is a carry into the exponent.
  const float units = std::nearbyint(std::ldexp(size, format.mantissa + format.bias - biased));
  return static_cast<uint8_t>(sign | (((biased - 1) << format.mantissa) + static_cast<int>(units)));
}

}  // namespace cuda_llm_ops::cpu
