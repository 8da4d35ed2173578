// Rows of sums: a lane's columns of a row, loaded and stored, and the weight of a part that is added to others.
#pragma once

#include <cstdint>

#include "../../ptx/cvt.cuh"
#include "../../ptx/ex2.cuh"

namespace cuda_llm_ops::cuda::decode {

// Columns that a lane has of a row, and their 16-bit store.
template <typename T, int Columns>
__device__ __forceinline__ void store_row(T* to, const float (&value)[Columns]) {
  uint32_t packed[Columns / 2];
#pragma unroll
  for (int i = 0; i < Columns / 2; ++i) packed[i] = ptx::cvt_rn_x2<T>(value[2 * i], value[2 * i + 1]);
  if constexpr (Columns == 2) {
    *reinterpret_cast<uint32_t*>(to) = packed[0];
  } else if constexpr (Columns == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
  } else {
    static_assert(Columns == 8);
    *reinterpret_cast<uint4*>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

template <int Columns>
__device__ __forceinline__ void load_columns(float (&value)[Columns], const float* from) {
  if constexpr (Columns == 2) {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    value[0] = pair.x, value[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
  }
}

// From L2: another thread block wrote it.
template <int Columns>
__device__ __forceinline__ void load_columns_l2(float (&value)[Columns], const float* from) {
  if constexpr (Columns == 2) {
    const float2 pair = __ldcg(reinterpret_cast<const float2*>(from));
    value[0] = pair.x, value[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
      value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
  }
}

template <int Columns>
__device__ __forceinline__ void store_columns(float* to, const float (&value)[Columns]) {
  if constexpr (Columns == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      *reinterpret_cast<float4*>(to + i) = make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    }
  }
}

// exp2 of a part's maximum over the common one: 0 for a part that saw no key.
__device__ __forceinline__ float part_weight(float maximum, float common) {
  return maximum == -INFINITY ? 0.0f : ptx::ex2(maximum - common);
}

}  // namespace cuda_llm_ops::cuda::decode
