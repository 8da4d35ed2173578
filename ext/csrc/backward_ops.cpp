// The gradients of flash_attention as an operator: schema, checks, dispatch; see gemm_ops.cpp. Autograd is in backward.py.
#include "tensors.h"

#include <tuple>

#include "attention_checks.h"
#include "backward.h"

namespace cuda_llm_ops {
namespace {

constexpr const char* op = "flash_attention_backward";

GradientType gradient_type(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case Dtype::Half: return GradientType::float16;
    case Dtype::BFloat16: return GradientType::bfloat16;
    case Dtype::Double: return GradientType::float64;
    case Dtype::Float: return GradientType::float32;
    default:
      fail("TypeError", op, "q is ", dtype_text(tensor.scalar_type()),
           "; it must be float64, float32, float16 or bfloat16");
  }
}

void check_shape(const char* name, const Tensor& tensor, Sizes expected) {
  bool same = tensor.dim() == static_cast<int64_t>(expected.size());
  for (size_t i = 0; same && i < expected.size(); ++i) same = tensor.size(static_cast<int64_t>(i)) == expected[i];
  if (!same) {
    fail("ValueError", op, name, " has shape ", shape_text(tensor), "; it must be ",
         shape_text(expected.data(), static_cast<int64_t>(expected.size())));
  }
}

void check(const Tensor& d_out, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
           const Tensor& lse) {
  const Tensor* tensors[] = {&q, &k, &v, &out, &d_out, &lse};
  const char* names[] = {"q", "k", "v", "out", "d_out", "lse"};
  for (int i = 0; i < 6; ++i) {
    check_defined(op, names[i], *tensors[i]);
    check_rank(op, names[i], *tensors[i], i == 5 ? 3 : 4,
               i == 5 ? "(batch, heads, sequence)" : "(batch, heads, sequence, head_dim)");
    check_same_device(op, names[i], *tensors[i], "q", q);
    if (i < 5) {
      check_same_dtype(op, names[i], *tensors[i], "q", q);
      check_extent(op, names[i], *tensors[i]);
    }
  }
  if (lse.scalar_type() != Dtype::Float) {
    fail("TypeError", op, "lse is ", dtype_text(lse.scalar_type()), "; it must be float32");
  }
  const int64_t heads = q.size(1), kv_heads = k.size(1);
  check_shape("k", k, {q.size(0), kv_heads, k.size(2), q.size(3)});
  check_shape("v", v, {q.size(0), kv_heads, k.size(2), q.size(3)});
  check_shape("out", out, {q.size(0), heads, q.size(2), q.size(3)});
  check_shape("d_out", d_out, {q.size(0), heads, q.size(2), q.size(3)});
  check_shape("lse", lse, {q.size(0), heads, q.size(2)});
  if (q.size(3) > kMaxHeadDim) {
    fail("NotImplementedError", op, "q has head_dim ", q.size(3), "; it must be at most ", kMaxHeadDim);
  }
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", op, "q has ", heads, " heads and k has ", kv_heads,
         "; the heads of q must be a multiple of the heads of k and v");
  }
}

// As the kernels read it: dense along head_dim, and on CUDA as TMA wants it. `kept` holds a copy until the launch.
template <bool cuda>
const void* readable(const char* name, const Tensor& given, HeadStrides& strides, std::optional<Tensor>& kept) {
  bool fits = given.size(3) <= 1 || given.stride(3) == 1;
#ifdef CUDA_LLM_OPS_WITH_CUDA
  if constexpr (cuda) {
    // A stride of 0 over more than one row, as an expanded gradient has, is nothing that TMA can step by.
    for (int i = 0; i < 3; ++i) fits = fits && (given.size(i) == 1 || given.stride(i) > 0);
    fits = fits && cuda::backward_reads(given.const_data_ptr(), head_strides(given));
  }
#endif
  kept = fits ? given : dense_copy(op, name, given);
  strides = head_strides(*kept);
  return kept->const_data_ptr();
}

template <bool cuda>
std::tuple<Tensor, Tensor, Tensor> backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,
                                            bool is_causal, std::optional<double> scale, bool deterministic) {
  check(d_out, q, k, v, out, lse);
#ifdef CUDA_LLM_OPS_WITH_CUDA
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if constexpr (cuda) {
    guard.emplace(q.get_device_index());
  }
#endif
  BackwardArguments arguments;
  arguments.type = gradient_type(q);
  arguments.batch = static_cast<int32_t>(q.size(0));
  arguments.heads = static_cast<int32_t>(q.size(1));
  arguments.kv_heads = static_cast<int32_t>(k.size(1));
  arguments.seq_q = static_cast<int32_t>(q.size(2));
  arguments.seq_kv = static_cast<int32_t>(k.size(2));
  arguments.head_dim = static_cast<int32_t>(q.size(3));
  attention_scale(op, scale, q.size(3));  // checks it
  arguments.scale = scale.has_value() ? *scale : q.size(3) == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  arguments.causal = is_causal;
  arguments.deterministic = deterministic;
  const auto like = [&](const char* name, const Tensor& tensor) {
    return allocate(op, name, tensor, tensor.scalar_type(),
                    {tensor.size(0), tensor.size(1), tensor.size(2), tensor.size(3)});
  };
  Tensor dq = like("gradient of q", q), dk = like("gradient of k", k), dv = like("gradient of v", v);
  if (q.numel() == 0 || k.numel() == 0) {
    return {zero(op, dq), zero(op, dk), zero(op, dv)};
  }
#ifdef CUDA_LLM_OPS_WITH_CUDA
  if constexpr (cuda) {
    if (const char* reason = cuda::backward_refusal(arguments); reason != nullptr) {
      fail("NotImplementedError", op, "q is ", dtype_text(q.scalar_type()), " of shape ", shape_text(q), " on ",
           device_text(q), "; ", reason);
    }
  }
#endif
  std::optional<Tensor> kept[5];
  arguments.q = readable<cuda>("q", q, arguments.q_stride, kept[0]);
  arguments.k = readable<cuda>("k", k, arguments.k_stride, kept[1]);
  arguments.v = readable<cuda>("v", v, arguments.v_stride, kept[2]);
  arguments.out = readable<cuda>("out", out, arguments.out_stride, kept[3]);
  arguments.d_out = readable<cuda>("d_out", d_out, arguments.d_out_stride, kept[4]);
  const Tensor dense_lse = lse.is_contiguous() ? lse : dense_copy(op, "lse", lse);
  arguments.lse = static_cast<const float*>(dense_lse.const_data_ptr());
  arguments.dq = dq.mutable_data_ptr();
  arguments.dk = dk.mutable_data_ptr();
  arguments.dv = dv.mutable_data_ptr();
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    const auto bytes = static_cast<int64_t>(cuda::backward_workspace_bytes(arguments));
    Tensor workspace = allocate(op, "sums of the gradient of q", q, Dtype::Byte, {bytes});
    arguments.workspace = workspace.mutable_data_ptr();
    check_launch(op, cuda::flash_attention_backward(arguments, current_stream(q)));
#endif
  } else {
    cpu::flash_attention_backward(arguments, parallel);
  }
  return {dq, dk, dv};
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("flash_attention_backward", TORCH_BOX(&backward<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "flash_attention_backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
      "bool is_causal=False, float? scale=None, bool deterministic=False) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
