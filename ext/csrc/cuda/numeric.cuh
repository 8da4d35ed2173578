// Element types of device code: conversion to and from float32 (round to nearest even) and packing of pairs. Written
// with the intrinsics, because torch's build flags take the operators of __half and __nv_bfloat16 away.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../kernels.h"

namespace cuda_llm_ops::cuda {

template <ScalarType Type>
struct ElementOf;
template <>
struct ElementOf<ScalarType::float32> {
  using type = float;
};
template <>
struct ElementOf<ScalarType::float16> {
  using type = __half;
};
template <>
struct ElementOf<ScalarType::bfloat16> {
  using type = __nv_bfloat16;
};

__host__ __device__ constexpr int element_bytes(ScalarType type) { return type == ScalarType::float32 ? 4 : 2; }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Two floats as one register of two T, `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The reverse of pack_pair: .x is the lower half.
template <typename T>
__device__ __forceinline__ float2 unpack_pair(uint32_t pair);
template <>
__device__ __forceinline__ float2 unpack_pair<__half>(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}
template <>
__device__ __forceinline__ float2 unpack_pair<__nv_bfloat16>(uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
}

// Half of each of a pair.
template <typename T>
__device__ __forceinline__ uint32_t halve_pair(uint32_t pair);
template <>
__device__ __forceinline__ uint32_t halve_pair<__half>(uint32_t pair) {
  const __half2 half = __hmul2(*reinterpret_cast<const __half2*>(&pair), __float2half2_rn(0.5f));
  return *reinterpret_cast<const uint32_t*>(&half);
}
template <>
__device__ __forceinline__ uint32_t halve_pair<__nv_bfloat16>(uint32_t pair) {
  const __nv_bfloat162 half = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), __float2bfloat162_rn(0.5f));
  return *reinterpret_cast<const uint32_t*>(&half);
}

}  // namespace cuda_llm_ops::cuda
