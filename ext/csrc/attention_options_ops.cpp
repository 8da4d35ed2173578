// flash_attention with AttentionOptions: either end of the diagonal, a window around it, the logarithms of the rows'
// sums, sequences of variable length. Schemas, checks, dispatch; see gemm_ops.cpp. A call without any of these goes to
// the plain operator in attention_ops.cpp.
#include "tensors.h"

#include <tuple>

#include "attention_options.h"

namespace cuda_llm_ops {
namespace {

// Allocates the logarithms of the row sums: an empty tensor unless `asked`.
Tensor allocate_lse(const char* op, const Tensor& q, const Tensor& v, bool asked, Sizes sizes) {
  if (!asked) {
    return allocate(op, "log-sum-exp", q, Dtype::Float, {0});
  }
  if (const bool no_q = q.size(q.dim() - 1) == 0; no_q || v.size(v.dim() - 1) == 0) {
    fail("ValueError", op, no_q ? "q" : "v", " has head_dim 0; with return_lse it must be at least 1");
  }
  return allocate(op, "log-sum-exp", q, Dtype::Float, sizes);
}

template <bool cuda>
void launch_plain(const char* op, const AttentionArguments& arguments, const Tensor& q) {
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_flash_attention(op, arguments, q);
#endif
  } else {
    cpu::flash_attention(arguments, parallel);
  }
}

template <bool cuda>
void launch(const char* op, const AttentionArguments& arguments, const AttentionOptions& options, const Tensor& q) {
  if constexpr (cuda) {
    check_blocks(op, arguments.seq_q, arguments.heads, arguments.batch);
#ifdef CUDA_LLM_OPS_WITH_CUDA
    check_launch(op, cuda::flash_attention_varlen(arguments, options, current_stream(q)));
#endif
  } else {
    cpu::flash_attention_varlen(arguments, options, parallel);
  }
}

template <bool cuda>
std::tuple<Tensor, Tensor> general(Tensor q_given, Tensor k_given, Tensor v_given, bool is_causal,
                                   std::optional<double> scale, bool bottom_right, int64_t window_left,
                                   int64_t window_right, bool return_lse) {
  const char* op = "flash_attention";
  check_attention(op, q_given, k_given, v_given);
  AttentionOptions options = options_of(op, {is_causal, bottom_right, window_left, window_right});
  const int64_t batch = q_given.size(0), heads = q_given.size(1), seq_q = q_given.size(2), head_dim = q_given.size(3);
  check_sequence(op, "the sequence of q", seq_q);
  check_sequence(op, "the sequence of k", k_given.size(2));
  const OnDeviceOf<cuda> on_device(q_given);
  const float factor = attention_scale(op, scale, head_dim);
  Tensor out = allocate(op, "output", q_given, q_given.scalar_type(), {batch, heads, seq_q, v_given.size(3)});
  Tensor lse = allocate_lse(op, q_given, v_given, return_lse, {batch, heads, seq_q});
  if (out.numel() == 0) {
    return {out, lse};
  }
  const Tensor q = with_unit_last_stride(op, "q", q_given), k = with_unit_last_stride(op, "k", k_given);
  if (return_lse) {
    options.lse = static_cast<float*>(lse.mutable_data_ptr());
    options.lse_stride_batch = heads * seq_q;
    options.lse_stride_head = seq_q;
  }
  bool is_plain = false;
  Values<cuda> values(op, v_given, out);
  const AttentionArguments arguments = values.arguments(
      [&](const Tensor& v, Tensor& to) {
        AttentionArguments made = batched_arguments(q, k, v, to, factor);
        is_plain = simplify(options, made);
        return made;
      },
      [&](const AttentionArguments& made) { return takes_narrow_values(made, is_plain ? nullptr : &options); });
  if (is_plain) {
    launch_plain<cuda>(op, arguments, q);
  } else {
    launch<cuda>(op, arguments, options, q);
  }
  values.finish();
  return {out, lse};
}

// ---- sequences of variable length ----

template <bool cuda>
std::tuple<Tensor, Tensor> varlen(Tensor q_given, Tensor k_given, Tensor v_given, Tensor cu_seqlens_q,
                                  Tensor cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k, bool is_causal,
                                  std::optional<double> scale, bool bottom_right, int64_t window_left,
                                  int64_t window_right, bool return_lse) {
  const char* op = "flash_attention_varlen";
  check_varlen(op, q_given, k_given, v_given);
  AttentionOptions options = options_of(op, {is_causal, bottom_right, window_left, window_right});
  const int64_t total = q_given.size(0), heads = q_given.size(1), head_dim = q_given.size(2);
  const float factor = attention_scale(op, scale, head_dim);
  const OnDeviceOf<cuda> on_device(q_given);
  const Packed packed =
      packed_sequences<cuda>(op, q_given, k_given, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k);
  Tensor out = allocate(op, "output", q_given, q_given.scalar_type(), {total, heads, v_given.size(2)});
  Tensor lse = allocate_lse(op, q_given, v_given, return_lse, {heads, total});
  if (out.numel() == 0 || packed.sequences == 0 || max_seqlen_q == 0) {
    return {out, lse};
  }
  const Tensor q = with_unit_last_stride(op, "q", q_given), k = with_unit_last_stride(op, "k", k_given);
  packed.describe(options, q, k);
  if (return_lse) {
    options.lse = static_cast<float*>(lse.mutable_data_ptr());
    options.lse_stride_head = total;
  }
  Values<cuda> values(op, v_given, out);
  const AttentionArguments arguments = values.arguments(
      [&](const Tensor& v, Tensor& to) {
        AttentionArguments made = attention_arguments(q, k, v, to, heads, k.size(1), factor);
        made.batch = static_cast<int32_t>(packed.sequences);
        made.seq_q = packed.longest_q;
        made.seq_kv = packed.longest_kv;
        made.q_stride = varlen_strides(q);
        made.k_stride = varlen_strides(k);
        made.v_stride = varlen_strides(v);
        made.out_stride = {0, v.size(2), heads * v.size(2)};
        return made;
      },
      [&](const AttentionArguments& made) { return takes_narrow_values(made, &options); });
  launch<cuda>(op, arguments, options, q);
  values.finish();
  return {out, lse};
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("flash_attention_general", TORCH_BOX(&general<cuda>));
  library.impl("flash_attention_varlen", TORCH_BOX(&varlen<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "flash_attention_general(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, "
      "bool bottom_right=False, int window_left=-1, int window_right=-1, bool return_lse=False) -> (Tensor, Tensor)");
  library.def(
      "flash_attention_varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
      "int max_seqlen_q, int max_seqlen_k, bool is_causal=False, float? scale=None, bool bottom_right=False, "
      "int window_left=-1, int window_right=-1, bool return_lse=False) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
