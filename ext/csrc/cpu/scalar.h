// 16-bit floating-point types on the CPU: conversion by integer arithmetic only, so that it compiles with any C++17
// compiler on any machine, gives the same bits everywhere, and vectorises inside plain loops (no branches, no calls).
//
// Rounding is to nearest, ties to even. Subnormals are kept in both directions (independent of the flush-to-zero
// mode for float16 -> float32), infinities stay infinities, NaN stays NaN (quiet).
#pragma once

#include <cstdint>
#include <cstring>

#include "../kernels.h"

namespace cuda_llm_ops::cpu {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float to_float(float value) { return value; }

inline float to_float(BFloat16 value) { return bits_float(static_cast<uint32_t>(value.bits) << 16); }

inline float to_float(Float16 value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t normal = magnitude + ((127u - 15u) << 23);
  const uint32_t special = normal + ((255u - 127u - 16u) << 23);  // infinity and NaN: exponent 31 becomes 255
  // Subnormal: 2^-14 * (1 + m) - 2^-14 is exact and never meets a float32 subnormal.
  const uint32_t subnormal = float_bits(bits_float(magnitude + (113u << 23)) - bits_float(113u << 23));
  const uint32_t finite = magnitude < (1u << 23) ? subnormal : normal;
  return bits_float((magnitude >= (31u << 23) ? special : finite) | sign);
}

template <typename T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

template <>
inline BFloat16 from_float<BFloat16>(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

template <>
inline Float16 from_float<Float16>(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  // Rebias the exponent, add half a unit in the last place (less one where the kept bit is even), cut.
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the sum with 0.5 aligns the mantissa so that the addition itself rounds to even.
  const uint32_t half = 126u << 23;
  const uint32_t small = magnitude < (113u << 23) ? magnitude : 0u;
  const uint32_t subnormal = float_bits(bits_float(small) + bits_float(half)) - half;
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t overflow = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return {static_cast<uint16_t>((magnitude >= (143u << 23) ? overflow : finite) | sign)};
}

// Calls visit(T{}) with the C++ type of `type`: float, Float16 or BFloat16.
template <typename Visitor>
void visit_scalar(ScalarType type, const Visitor& visit) {
  switch (type) {
    case ScalarType::float32: visit(float{}); return;
    case ScalarType::float16: visit(Float16{}); return;
    case ScalarType::bfloat16: visit(BFloat16{}); return;
  }
}

}  // namespace cuda_llm_ops::cpu
