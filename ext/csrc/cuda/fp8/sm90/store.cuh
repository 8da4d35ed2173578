// How a tile of sums becomes a part of out: scales, bias, and the conversion to out's type.
#pragma once

#include "../../numeric.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

__device__ __forceinline__ float scale_of_row(const Fp8GemmArguments& g, int row) {
  return __ldg(g.scale_a + row * g.scale_a_stride_m);
}

__device__ __forceinline__ float scale_of_column(const Fp8GemmArguments& g, const float* scales_b, int column) {
  return __ldg(scales_b + column * g.scale_b_stride_n);
}

__device__ __forceinline__ float bias_of(const Fp8GemmArguments& g, int column) {
  if (g.bias == nullptr) return 0.0f;
  const int64_t at = column * g.bias_stride;
  switch (g.out_type) {
    case ScalarType::float16: return to_float(static_cast<const __half*>(g.bias)[at]);
    case ScalarType::bfloat16: return to_float(static_cast<const __nv_bfloat16*>(g.bias)[at]);
    default: return static_cast<const float*>(g.bias)[at];
  }
}

__device__ __forceinline__ void store_number(const Fp8GemmArguments& g, int row, int column, float value) {
  const int64_t at = static_cast<int64_t>(row) * g.n + column;
  switch (g.out_type) {
    case ScalarType::float16: static_cast<__half*>(g.out)[at] = from_float<__half>(value); return;
    case ScalarType::bfloat16: static_cast<__nv_bfloat16*>(g.out)[at] = from_float<__nv_bfloat16>(value); return;
    default: static_cast<float*>(g.out)[at] = value;
  }
}

// Four neighbours in a row, of which those from column n on are left out.
__device__ __forceinline__ void store_numbers(const Fp8GemmArguments& g, int row, int column, float4 values) {
  if (g.n % 4 != 0 || column + 4 > g.n) {
    const float single[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < g.n) store_number(g, row, column + i, single[i]);
    }
    return;
  }
  const int64_t at = static_cast<int64_t>(row) * g.n + column;
  if (g.out_type == ScalarType::float32) {
    *reinterpret_cast<float4*>(static_cast<float*>(g.out) + at) = values;
    return;
  }
  const bool half = g.out_type == ScalarType::float16;
  const uint2 pairs =
      half ? make_uint2(pack_pair<__half>(values.x, values.y), pack_pair<__half>(values.z, values.w))
           : make_uint2(pack_pair<__nv_bfloat16>(values.x, values.y), pack_pair<__nv_bfloat16>(values.z, values.w));
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(g.out) + at) = pairs;
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
