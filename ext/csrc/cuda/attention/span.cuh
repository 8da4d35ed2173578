// The rows and keys of a thread block in a kernel that takes AttentionOptions.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "../../kernels.h"

namespace cuda_llm_ops::cuda::attention {

// One sequence. Its query i sees the keys j with i + low <= j < i + high and 0 <= j < seq_kv.
struct Span {
  int seq_q, seq_kv;
  int first_q, first_kv;  // its first rows, if several sequences share a tensor; else 0
  int low, high;
};

// Lengths and sides are at most kMaxSequence and kEveryKey, so nothing here leaves 31 bits.
__device__ __forceinline__ Span span_of(const AttentionOptions& options, int batch, int seq_q, int seq_kv) {
  Span span{seq_q, seq_kv, 0, 0, 0, 0};
  if (options.cu_seqlens_q != nullptr) {
    const auto inside = [](int offset, int from, int total) { return min(max(offset, from), total); };
    span.first_q = inside(options.cu_seqlens_q[batch], 0, options.total_q);
    span.first_kv = inside(options.cu_seqlens_kv[batch], 0, options.total_kv);
    span.seq_q = inside(options.cu_seqlens_q[batch + 1], span.first_q, options.total_q) - span.first_q;
    span.seq_kv = inside(options.cu_seqlens_kv[batch + 1], span.first_kv, options.total_kv) - span.first_kv;
  }
  const int diagonal = options.bottom_right ? span.seq_kv - span.seq_q : 0;
  span.low = diagonal - options.left;
  span.high = diagonal + options.right + 1;
  span.seq_q = min(span.seq_q, seq_q);  // the diagonal is of the whole sequence
  return span;
}

// The natural logarithm of a row's sum, from its base-2 maximum and the sum relative to it.
__device__ __forceinline__ float log_sum_exp(float maximum, float sum) {
  return sum == 0.0f ? -INFINITY : (maximum + log2f(sum)) * 0.6931471805599453f;
}

}  // namespace cuda_llm_ops::cuda::attention
