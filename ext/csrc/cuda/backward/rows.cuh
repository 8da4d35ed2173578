// The small kernel before the backward for any mask: d_sum = rowsum(d_out * out) - d_lse, and the logarithms in base 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "../numeric.cuh"
#include "general.h"

namespace cuda_llm_ops::cuda::backward {

constexpr int rows_threads = 256;

// A warp a row; any strides and head_dim.
template <typename T>
__device__ __forceinline__ void rows_body(const RowParameters& p, int64_t row, int lane) {
  const int query = static_cast<int>(row % p.seq_q);
  const int64_t head = row / p.seq_q, batch = head / p.heads;
  const auto of = [&](const void* tensor, const HeadStrides& stride) {
    return static_cast<const T*>(tensor) + batch * stride.batch + head % p.heads * stride.head + query * stride.seq;
  };
  const T* const out = of(p.out, p.out_stride);
  const T* const d_out = of(p.d_out, p.d_out_stride);
  float sum = 0.0f;
  for (int c = lane; c < p.value_dim; c += 32) sum += to_float(out[c]) * to_float(d_out[c]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) {
    // A row without a finite score has no weights: +inf makes them 0.
    const float lse = p.lse[row];
    p.lse_2[row] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
    p.d_sum[row] = p.d_lse == nullptr ? sum : sum - p.d_lse[row];
  }
}

}  // namespace cuda_llm_ops::cuda::backward
