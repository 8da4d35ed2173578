// The gradients of flash_attention and flash_attention_varlen as operators: schemas, checks, dispatch; see gemm_ops.cpp.
// Autograd is in backward.py.
#include "tensors.h"

#include <tuple>

#include "attention_options.h"
#include "backward.h"

namespace cuda_llm_ops {
namespace {

GradientType gradient_type(const char* op, const Tensor& tensor) {
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

void check_shape(const char* op, const char* name, const Tensor& tensor, Sizes expected) {
  bool same = tensor.dim() == static_cast<int64_t>(expected.size());
  for (size_t i = 0; same && i < expected.size(); ++i) same = tensor.size(static_cast<int64_t>(i)) == expected[i];
  if (!same) {
    fail("ValueError", op, name, " has shape ", shape_text(tensor), "; it must be ",
         shape_text(expected.data(), static_cast<int64_t>(expected.size())));
  }
}

// What both layouts take. Dimensions of rows stand at `seq`, those of heads at `head`.
struct Inputs {
  const Tensor &d_out, &q, &k, &v, &out, &lse;
  const std::optional<Tensor>& d_lse;
};

void check(const char* op, const Inputs& in, const char* layout, int seq, int head) {
  const Tensor &q = in.q, &k = in.k, &v = in.v;
  const int64_t rank = std::max(seq, head) + 2;
  const Tensor* tensors[] = {&q, &k, &v, &in.out, &in.d_out, &in.lse, in.d_lse.has_value() ? &*in.d_lse : nullptr};
  const char* names[] = {"q", "k", "v", "out", "d_out", "lse", "d_lse"};
  for (int i = 0; i < 7; ++i) {
    if (tensors[i] == nullptr) continue;
    check_defined(op, names[i], *tensors[i]);
    check_rank(op, names[i], *tensors[i], i >= 5 ? rank - 1 : rank,
               i < 5       ? layout
               : rank == 4 ? "(batch, heads, sequence)"
                           : "(heads, tokens of all sequences)");
    check_same_device(op, names[i], *tensors[i], "q", q);
    if (i < 5) {
      check_same_dtype(op, names[i], *tensors[i], "q", q);
      check_extent(op, names[i], *tensors[i]);
    } else if (tensors[i]->scalar_type() != Dtype::Float) {
      fail("TypeError", op, names[i], " is ", dtype_text(tensors[i]->scalar_type()), "; it must be float32");
    }
  }
  const int64_t heads = q.size(head), kv_heads = k.size(head), head_dim = q.size(rank - 1),
                value_dim = v.size(rank - 1);
  const auto check_as = [&](int i, int64_t its_heads, int64_t rows, int64_t columns) {
    if (rank == 4) {
      check_shape(op, names[i], *tensors[i], {q.size(0), its_heads, rows, columns});
    } else {
      check_shape(op, names[i], *tensors[i], {rows, its_heads, columns});
    }
  };
  check_as(1, kv_heads, k.size(seq), head_dim);
  check_as(2, kv_heads, k.size(seq), value_dim);
  check_as(3, heads, q.size(seq), value_dim);
  check_as(4, heads, q.size(seq), value_dim);
  for (int i = 5; i < 7; ++i) {
    if (tensors[i] == nullptr) continue;
    if (rank == 4) {
      check_shape(op, names[i], *tensors[i], {q.size(0), heads, q.size(seq)});
    } else {
      check_shape(op, names[i], *tensors[i], {heads, q.size(seq)});
    }
  }
  if (head_dim > kMaxHeadDim) {
    fail("NotImplementedError", op, "q has head_dim ", head_dim, "; it must be at most ", kMaxHeadDim);
  }
  check_value_dim(op, head_dim, value_dim);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", op, "q has ", heads, " heads and k has ", kv_heads,
         "; the heads of q must be a multiple of the heads of k and v");
  }
}

HeadStrides strides_of(const Tensor& tensor) {
  return tensor.dim() == 4 ? head_strides(tensor) : varlen_strides(tensor);
}

// A dense copy whose rows begin on multiples of 16 bytes, with zeros between them.
Tensor aligned_copy(const char* op, const char* name, const Tensor& tensor) {
  const int64_t columns = tensor.size(tensor.dim() - 1);
  if (columns % 8 == 0) return dense_copy(op, name, tensor);
  return first_columns(padded_copy(op, name, tensor, (columns + 7) / 8 * 8), columns);
}

// As the kernels read it: dense along head_dim, and on CUDA with rows where TMA or 16-byte copies can begin. `kept` holds
// a copy until the launch.
template <bool cuda>
const void* readable(const char* op, const char* name, const Tensor& given,
                     [[maybe_unused]] const BackwardArguments& arguments, HeadStrides& strides,
                     std::optional<Tensor>& kept) {
  const int64_t last = given.dim() - 1;
  bool fits = given.size(last) <= 1 || given.stride(last) == 1;
#ifdef CUDA_LLM_OPS_WITH_CUDA
  if constexpr (cuda) {
    // A stride of 0 over more than one row, as an expanded gradient has, is nothing that TMA can step by.
    for (int i = 0; i < last; ++i) fits = fits && (given.size(i) == 1 || given.stride(i) > 0);
    fits = fits && cuda::backward_reads(arguments, name[0] == 'o', static_cast<int32_t>(given.size(last)),
                                        given.const_data_ptr(), strides_of(given));
  }
#endif
  kept = fits ? given : cuda ? aligned_copy(op, name, given) : dense_copy(op, name, given);
  strides = strides_of(*kept);
  return kept->const_data_ptr();
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// `arguments` has sizes and mask.
template <bool cuda>
Gradients run(const char* op, const Inputs& in, BackwardArguments arguments, std::optional<double> scale,
              bool deterministic) {
  const Tensor &q = in.q, &k = in.k;
  const int64_t head_dim = q.size(q.dim() - 1);
  arguments.type = gradient_type(op, q);
  arguments.head_dim = static_cast<int32_t>(head_dim);
  arguments.value_dim = static_cast<int32_t>(in.v.size(q.dim() - 1));
  attention_scale(op, scale, head_dim);  // checks it
  arguments.scale = scale.has_value() ? *scale : head_dim == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(head_dim));
  arguments.deterministic = deterministic;
  const auto like = [&](const char* name, const Tensor& tensor) {
    return allocate(op, name, tensor, tensor.scalar_type(), tensor.sizes());
  };
  Tensor dq = like("gradient of q", q), dk = like("gradient of k", k), dv = like("gradient of v", in.v);
  const bool packed = arguments.options.cu_seqlens_q != nullptr;
  const bool nothing = q.numel() == 0 || k.numel() == 0 || in.v.numel() == 0 || arguments.batch == 0;
  if (nothing || packed) {  // rows of no sequence have no gradient
    zero(op, dq), zero(op, dk), zero(op, dv);
  }
  if (nothing || arguments.seq_q == 0 || arguments.seq_kv == 0) return {dq, dk, dv};
#ifdef CUDA_LLM_OPS_WITH_CUDA
  if constexpr (cuda) {
    if (const char* reason = cuda::backward_refusal(arguments); reason != nullptr) {
      fail("NotImplementedError", op, "q is ", dtype_text(q.scalar_type()), " of shape ", shape_text(q), " on ",
           device_text(q), "; ", reason);
    }
  }
#endif
  std::optional<Tensor> kept[5];
  const auto read = [&](const char* name, const Tensor& given, HeadStrides& strides, int i) {
    return readable<cuda>(op, name, given, arguments, strides, kept[i]);
  };
  arguments.q = read("q", q, arguments.q_stride, 0);
  arguments.k = read("k", k, arguments.k_stride, 1);
  arguments.v = read("v", in.v, arguments.v_stride, 2);
  arguments.out = read("out", in.out, arguments.out_stride, 3);
  arguments.d_out = read("d_out", in.d_out, arguments.d_out_stride, 4);
  const auto dense = [&](const char* name, const Tensor& rows) {
    return rows.is_contiguous() ? rows : dense_copy(op, name, rows);
  };
  const Tensor lse = dense("lse", in.lse);
  arguments.lse = static_cast<const float*>(lse.const_data_ptr());
  std::optional<Tensor> d_lse;
  if (in.d_lse.has_value()) {
    d_lse = dense("d_lse", *in.d_lse);
    arguments.d_lse = static_cast<const float*>(d_lse->const_data_ptr());
  }
  arguments.dq = dq.mutable_data_ptr();
  arguments.dk = dk.mutable_data_ptr();
  arguments.dv = dv.mutable_data_ptr();
  arguments.dq_stride = strides_of(dq);
  arguments.dk_stride = strides_of(dk);
  arguments.dv_stride = strides_of(dv);
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    const auto bytes = static_cast<int64_t>(cuda::backward_workspace_bytes(arguments));
    Tensor workspace = allocate(op, "sums of the gradients", q, Dtype::Byte, {bytes});
    arguments.workspace = workspace.mutable_data_ptr();
    check_launch(op, cuda::flash_attention_backward(arguments, current_stream(q)));
#endif
  } else {
    cpu::flash_attention_backward(arguments, parallel);
  }
  return {dq, dk, dv};
}

template <bool cuda>
Gradients backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool is_causal,
                   std::optional<double> scale, bool deterministic, bool bottom_right, int64_t window_left,
                   int64_t window_right, std::optional<Tensor> d_lse) {
  const char* op = "flash_attention_backward";
  const Inputs inputs{d_out, q, k, v, out, lse, d_lse};
  check(op, inputs, "(batch, heads, sequence, head_dim)", 2, 1);
  check_sequence(op, "the sequence of q", q.size(2));
  check_sequence(op, "the sequence of k", k.size(2));
  const OnDeviceOf<cuda> on_device(q);
  BackwardArguments arguments;
  arguments.batch = static_cast<int32_t>(q.size(0));
  arguments.heads = static_cast<int32_t>(q.size(1));
  arguments.kv_heads = static_cast<int32_t>(k.size(1));
  arguments.seq_q = static_cast<int32_t>(q.size(2));
  arguments.seq_kv = static_cast<int32_t>(k.size(2));
  arguments.options = options_of(op, {is_causal, bottom_right, window_left, window_right});
  widen(arguments.options, q.size(2), k.size(2));
  return run<cuda>(op, inputs, arguments, scale, deterministic);
}

template <bool cuda>
Gradients varlen_backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_seqlens_q,
                          Tensor cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k, bool is_causal,
                          std::optional<double> scale, bool deterministic, bool bottom_right, int64_t window_left,
                          int64_t window_right, std::optional<Tensor> d_lse) {
  const char* op = "flash_attention_varlen_backward";
  const Inputs inputs{d_out, q, k, v, out, lse, d_lse};
  check(op, inputs, "(tokens of all sequences, heads, head_dim)", 0, 1);
  const Packed packed = packed_sequences<cuda>(op, q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k);
  const OnDeviceOf<cuda> on_device(q);
  BackwardArguments arguments;
  arguments.batch = static_cast<int32_t>(packed.sequences);
  arguments.heads = static_cast<int32_t>(q.size(1));
  arguments.kv_heads = static_cast<int32_t>(k.size(1));
  arguments.seq_q = packed.longest_q;
  arguments.seq_kv = packed.longest_kv;
  arguments.options = options_of(op, {is_causal, bottom_right, window_left, window_right});
  packed.describe(arguments.options, q, k);
  if (packed.sequences > 0) {
    check_blocks(op, std::max(packed.longest_q, packed.longest_kv), arguments.heads, arguments.batch);
  }
  return run<cuda>(op, inputs, arguments, scale, deterministic);
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("flash_attention_backward", TORCH_BOX(&backward<cuda>));
  library.impl("flash_attention_varlen_backward", TORCH_BOX(&varlen_backward<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "flash_attention_backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
      "bool is_causal=False, float? scale=None, bool deterministic=False, bool bottom_right=False, "
      "int window_left=-1, int window_right=-1, Tensor? d_lse=None) -> (Tensor, Tensor, Tensor)");
  library.def(
      "flash_attention_varlen_backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
      "Tensor cu_seqlens_q, Tensor cu_seqlens_k, int max_seqlen_q, int max_seqlen_k, bool is_causal=False, "
      "float? scale=None, bool deterministic=False, bool bottom_right=False, int window_left=-1, "
      "int window_right=-1, Tensor? d_lse=None) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
