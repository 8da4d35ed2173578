// What the kernels of attention's backward for any mask are told (mma/, simt/), and how the host calls them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../../backward.h"

namespace cuda_llm_ops::cuda::backward {

// Key tiles and query tiles are counted over heads in sections: a section's heads are worked on together, the longest
// tiles first, so that the device does not end on long ones.
struct GeneralParameters {
  const void* q;
  const void* k;
  const void* v;
  const void* d_out;
  const float*
      lse_2;  // (batch, heads, queries), or (heads, rows of q): log2 of the rows' sums; +inf where a row has none
  const float* d_sum;  // the same shape: rowsum(d_out * out), less the gradient of the logarithm
  void* dq;
  void* dk;
  void* dv;
  HeadStrides q_stride, k_stride, v_stride, d_out_stride;
  HeadStrides dq_stride, dk_stride, dv_stride;
  HeadStrides row_stride;  // of lse_2 and d_sum; seq's is 1
  int32_t batch, heads, kv_heads, group;
  int32_t seq_q, seq_kv, head_dim, value_dim;
  int32_t section;
  float scale, scale_log2;  // scale * log2(e)
  AttentionOptions options;
  float* sums;  // float32 alone: what the weights of each row are divided by
};

// lse_2 and d_sum, of rows = batch * heads * seq_q. Of packed sequences batch is 1 and seq_q all rows of q.
struct RowParameters {
  const void* out;
  const void* d_out;
  const float* lse;    // natural, dense
  const float* d_lse;  // dense, or nullptr
  float* lse_2;
  float* d_sum;
  HeadStrides out_stride, d_out_stride;
  int64_t rows;
  int32_t heads, seq_q, value_dim;
};

// What both kernels are told, and what the one before them is; `rows` is memory for row_count(a) * row_floats(a) floats.
inline int64_t row_count(const BackwardArguments& a) {
  const bool packed = a.options.cu_seqlens_q != nullptr;
  return int64_t{a.heads} * (packed ? a.options.total_q : int64_t{a.batch} * a.seq_q);
}

inline int row_floats(const BackwardArguments& a) { return a.type == GradientType::float32 ? 3 : 2; }

inline GeneralParameters general_parameters(const BackwardArguments& a, float* rows) {
  const bool packed = a.options.cu_seqlens_q != nullptr;
  const int64_t head = packed ? a.options.total_q : a.seq_q;
  GeneralParameters p{};
  p.q = a.q, p.k = a.k, p.v = a.v, p.d_out = a.d_out;
  p.lse_2 = rows, p.d_sum = rows + row_count(a);
  p.dq = a.dq, p.dk = a.dk, p.dv = a.dv;
  p.q_stride = a.q_stride, p.k_stride = a.k_stride, p.v_stride = a.v_stride, p.d_out_stride = a.d_out_stride;
  p.dq_stride = a.dq_stride, p.dk_stride = a.dk_stride, p.dv_stride = a.dv_stride;
  p.row_stride = {packed ? 0 : a.heads * head, head, 1};
  p.batch = a.batch, p.heads = a.heads, p.kv_heads = a.kv_heads, p.group = a.heads / a.kv_heads;
  p.seq_q = a.seq_q, p.seq_kv = a.seq_kv, p.head_dim = a.head_dim, p.value_dim = a.value_dim;
  p.scale = static_cast<float>(a.scale);
  p.scale_log2 = static_cast<float>(a.scale * 1.4426950408889634);
  p.options = a.options;
  p.sums = a.type == GradientType::float32 ? rows + row_count(a) * 2 : nullptr;
  // Without a mask all tiles are equally long, and one head after the other reads least. Otherwise as many heads as keep
  // what they read in the L2 cache.
  const bool unequal = packed || a.options.right < kEveryKey || a.options.left < kEveryKey;
  const int64_t read = std::max<int64_t>(1, int64_t{p.group} * a.seq_q * (a.head_dim + a.value_dim) * 2);
  p.section =
      unequal ? static_cast<int32_t>(std::clamp<int64_t>((int64_t{24} << 20) / read, 1, int64_t{a.batch} * a.kv_heads))
              : 1;
  return p;
}

inline RowParameters row_parameters(const BackwardArguments& a, float* rows) {
  const bool packed = a.options.cu_seqlens_q != nullptr;
  RowParameters p{};
  p.out = a.out, p.d_out = a.d_out, p.lse = a.lse, p.d_lse = a.d_lse;
  p.lse_2 = rows, p.d_sum = rows + row_count(a);
  p.out_stride = a.out_stride, p.d_out_stride = a.d_out_stride;
  p.rows = row_count(a);
  p.heads = a.heads;
  p.seq_q = packed ? a.options.total_q : a.seq_q;
  p.value_dim = a.value_dim;
  return p;
}

const char* launch_rows(const RowParameters& p, GradientType type, cudaStream_t stream);

// nullptr, or why the device cannot run it. `a` may have any mask; its type is float16 or bfloat16.
const char* mma_refusal(const BackwardArguments& a);
const char* launch_mma(const BackwardArguments& a, const GeneralParameters& p, cudaStream_t stream);
void mma_attributes(std::vector<KernelAttributes>& into);

// For float32.
const char* launch_simt(const BackwardArguments& a, const GeneralParameters& p, cudaStream_t stream);
void simt_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::backward
