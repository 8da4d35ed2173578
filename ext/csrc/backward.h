// What backward_ops.cpp asks of the kernels of attention's backward (cpu/, cuda/backward/): plain structs and functions, as
// in kernels.h.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops {

enum class GradientType : int32_t { float16, bfloat16, float32, float64 };

// The gradients of out = softmax(scale * q k^T [masked]) v with regard to q, k and v, given d_out, the one with regard to
// out, and d_lse, the one with regard to the logarithms of the rows' sums, if any. Every size is at least 1.
//
//   p = exp(scale * q k^T - lse)   ds = p * (d_out v^T - rowsum(d_out * out) + d_lse)
//   dv = p^T d_out                 dk = scale * ds^T q                                  dq = scale * ds k
//
// dk and dv are sums over the query heads that share a key head. head_dim's stride is 1 in all tensors. The mask and
// packed sequences are AttentionOptions', whose lse is not used; where those are packed, seq_q and seq_kv are upper bounds
// of the lengths, stride.batch is not used, and rows of dq, dk and dv in no sequence are left as they are.
struct BackwardArguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;
  const void* d_out = nullptr;
  // Natural logarithms and their gradient (or nullptr): (batch, heads, seq_q), or (heads, rows of q) of packed sequences,
  // dense. The portable kernels ignore lse.
  const float* lse = nullptr;
  const float* d_lse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int32_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0;
  int32_t head_dim = 0, value_dim = 0;  // of q and k; of v and out
  HeadStrides q_stride, k_stride, v_stride, out_stride, d_out_stride, dq_stride, dk_stride, dv_stride;
  double scale = 1.0;
  AttentionOptions options;
  bool deterministic = false;  // the same bits at every launch; only the Hopper kernels differ otherwise
  GradientType type = GradientType::float32;
  void* workspace = nullptr;  // on CUDA: backward_workspace_bytes(), 256-byte aligned
};

namespace cpu {
// The definition, in float64 where the type is float64 and in float32 otherwise.
void flash_attention_backward(const BackwardArguments& arguments, const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
// A static string that says why there is no kernel for these arguments on the current device, or nullptr.
const char* backward_refusal(const BackwardArguments& arguments);
// Whether the kernel that computes it can read a tensor of these strides at this address; output: it is `out`. If not, it
// can read a dense copy whose rows have zeros behind their `columns`, as many as make a multiple of 8.
bool backward_reads(const BackwardArguments& arguments, bool output, int32_t columns, const void* pointer,
                    const HeadStrides& strides);
size_t backward_workspace_bytes(const BackwardArguments& arguments);
const char* flash_attention_backward(const BackwardArguments& arguments, void* stream);
void backward_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
