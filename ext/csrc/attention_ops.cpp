// The attention operators that take nothing but a causal mask and a scale: schemas, checks, dispatch; see gemm_ops.cpp.
#include "tensors.h"

#include "attention_checks.h"

namespace cuda_llm_ops {
namespace {

enum class Attention { naive, tiled, flash };

const char* op_name(Attention kind) {
  switch (kind) {
    case Attention::naive: return "naive_attention";
    case Attention::tiled: return "tiled_attention";
    default: return "flash_attention";
  }
}

template <bool cuda>
Tensor attention(Attention kind, const Tensor& q_given, const Tensor& k_given, const Tensor& v_given, bool is_causal,
                 std::optional<double> scale) {
  const char* op = op_name(kind);
  check_attention(op, q_given, k_given, v_given);
  const float factor = attention_scale(op, scale, q_given.size(3));
  const OnDeviceOf<cuda> on_device(q_given);
  const Dtype dtype = q_given.scalar_type();
  const int64_t batch = q_given.size(0), heads = q_given.size(1), seq_q = q_given.size(2);
  Tensor out = allocate(op, "output", q_given, dtype, {batch, heads, seq_q, v_given.size(3)});
  if (out.numel() == 0) {
    return out;
  }
  if (k_given.size(2) == 0) {  // no key to look at: zeros, as SDPA gives
    return zero(op, out);
  }
  const Tensor q = with_unit_last_stride(op, "q", q_given), k = with_unit_last_stride(op, "k", k_given);
  Values<cuda> values(op, v_given, out);
  AttentionArguments arguments = values.arguments(
      [&](const Tensor& v, Tensor& to) {
        AttentionArguments made = batched_arguments(q, k, v, to, factor);
        made.causal = is_causal;
        return made;
      },
      [&](const AttentionArguments& made) { return kind == Attention::flash && takes_narrow_values(made, nullptr); });

  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    if (kind == Attention::naive) {
      launch_with_workspace(op, "score matrix", q, cuda::naive_attention_workspace_bytes(arguments), arguments,
                            cuda::naive_attention);
    } else if (kind == Attention::tiled) {
      check_launch(op, cuda::tiled_attention(arguments, current_stream(q)));
    } else {
      launch_flash_attention(op, arguments, q);
    }
#endif
  } else {
    switch (kind) {
      case Attention::naive: cpu::naive_attention(arguments, parallel); break;
      case Attention::tiled: cpu::tiled_attention(arguments, parallel); break;
      case Attention::flash: cpu::flash_attention(arguments, parallel); break;
    }
  }
  values.finish();
  return out;
}

template <bool cuda, Attention kind>
Tensor attention_op(Tensor q, Tensor k, Tensor v, bool is_causal, std::optional<double> scale) {
  return attention<cuda>(kind, q, k, v, is_causal, scale);
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("naive_attention", TORCH_BOX((&attention_op<cuda, Attention::naive>)));
  library.impl("tiled_attention", TORCH_BOX((&attention_op<cuda, Attention::tiled>)));
  library.impl("flash_attention", TORCH_BOX((&attention_op<cuda, Attention::flash>)));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def("naive_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
  library.def("tiled_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
  library.def("flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
