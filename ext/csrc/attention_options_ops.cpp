// flash_attention with AttentionOptions: either end of the diagonal, a window around it, the logarithms of the rows'
// sums, sequences of variable length. Schemas, checks, dispatch; see gemm_ops.cpp. A call without any of these goes to
// the plain operator in attention_ops.cpp.
#include "tensors.h"

#include <tuple>

#include "attention_checks.h"

namespace cuda_llm_ops {
namespace {

struct Mask {
  bool is_causal, bottom_right;
  int64_t window_left, window_right;  // -1: no limit
};

AttentionOptions options_of(const char* op, const Mask& mask) {
  const auto side = [&](const char* name, int64_t keys) {
    if (keys < -1) {
      fail("ValueError", op, name, " is ", keys, "; it must be a number of keys, or -1 for no limit");
    }
    return keys == -1 ? kEveryKey : static_cast<int32_t>(std::min<int64_t>(keys, kEveryKey));
  };
  AttentionOptions options;
  options.left = side("window_left", mask.window_left);
  options.right = side("window_right", mask.window_right);
  if (mask.is_causal) {
    options.right = 0;
  }
  options.bottom_right = mask.bottom_right;
  return options;
}

void check_sequence(const char* op, const char* name, int64_t length) {
  if (length > kMaxSequence) {
    fail("NotImplementedError", op, name, " is ", length, "; with options it must be at most ", int64_t{kMaxSequence});
  }
}

// A window wider than the sequence is no window. Returns whether the plain operator can compute what remains.
bool simplify(AttentionOptions& options, AttentionArguments& arguments) {
  const int64_t diagonal = options.bottom_right ? int64_t{arguments.seq_kv} - arguments.seq_q : 0;
  if (options.left >= arguments.seq_q - 1 + diagonal) {
    options.left = kEveryKey;
  }
  if (options.right >= arguments.seq_kv - 1 - diagonal) {
    options.right = kEveryKey;
  }
  arguments.causal = options.right != kEveryKey;
  return options.lse == nullptr && options.left == kEveryKey && arguments.seq_kv > 0 &&
         (options.right == kEveryKey || options.right + diagonal == 0);
}

// Allocates the logarithms of the row sums: an empty tensor unless `asked`.
Tensor allocate_lse(const char* op, const Tensor& q, bool asked, Sizes sizes) {
  if (!asked) {
    return allocate(op, "log-sum-exp", q, Dtype::Float, {0});
  }
  if (q.size(q.dim() - 1) == 0) {
    fail("ValueError", op, "q has head_dim 0; with return_lse it must be at least 1");
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
    constexpr int64_t kFewestRows = 16;  // of a block of any kernel; CUDA counts blocks in 31 bits
    const int64_t blocks = (arguments.seq_q + kFewestRows - 1) / kFewestRows * arguments.heads;
    if (blocks > kMaxElements / arguments.batch) {
      fail("NotImplementedError", op, "max_seqlen_q is ", int64_t{arguments.seq_q}, " for ", int64_t{arguments.batch},
           " sequences of ", int64_t{arguments.heads}, " heads; their product must be below 2**35");
    }
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
  Tensor out = allocate(op, "output", q_given, q_given.scalar_type(), {batch, heads, seq_q, head_dim});
  Tensor lse = allocate_lse(op, q_given, return_lse, {batch, heads, seq_q});
  if (out.numel() == 0) {
    return {out, lse};
  }
  const Tensor q = with_unit_last_stride(op, "q", q_given), k = with_unit_last_stride(op, "k", k_given),
               v = with_unit_last_stride(op, "v", v_given);
  AttentionArguments arguments = batched_arguments(q, k, v, out, factor);
  if (return_lse) {
    options.lse = static_cast<float*>(lse.mutable_data_ptr());
    options.lse_stride_batch = heads * seq_q;
    options.lse_stride_head = seq_q;
  }
  if (simplify(options, arguments)) {
    launch_plain<cuda>(op, arguments, q);
  } else {
    launch<cuda>(op, arguments, options, q);
  }
  return {out, lse};
}

// ---- sequences of variable length ----

void check_varlen(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor* const tensors[3] = {&q, &k, &v};
  const char* names[] = {"q", "k", "v"};
  check_tensors(op, tensors, 3, "(tokens of all sequences, heads, head_dim)");
  for (int i = 1; i < 3; ++i) {
    if (tensors[i]->size(2) != q.size(2)) {
      fail("ValueError", op, names[i], " has head_dim ", tensors[i]->size(2), " but q has ", q.size(2),
           "; they must be equal");
    }
  }
  if (v.size(0) != k.size(0) || v.size(1) != k.size(1)) {
    fail("ValueError", op, "v has shape ", shape_text(v), " but k has ", shape_text(k), "; they must be equal");
  }
  check_heads(op, tensors, 1);
}

void check_offsets(const char* op, const char* name, const Tensor& offsets, const Tensor& q) {
  check_defined(op, name, offsets);
  check_rank(op, name, offsets, 1, "(sequences + 1,)");
  if (offsets.scalar_type() != Dtype::Int) {
    fail("TypeError", op, name, " is ", dtype_text(offsets.scalar_type()), "; it must be int32");
  }
  check_same_device(op, name, offsets, "q", q);
  if (offsets.size(0) < 1) {
    fail("ValueError", op, name, " is empty; it must have one element more than there are sequences");
  }
}

int32_t check_longest(const char* op, const char* name, int64_t longest) {
  if (longest < 0) {
    fail("ValueError", op, name, " is ", longest, "; it must not be negative");
  }
  check_sequence(op, name, longest);
  return static_cast<int32_t>(longest);
}

// Only offsets in the host's memory can be checked without waiting for the device.
void check_offset_values(const char* op, const char* name, const Tensor& offsets, int64_t total, int64_t longest,
                         const char* longest_name) {
  const auto* values = static_cast<const int32_t*>(offsets.const_data_ptr());
  const int64_t count = offsets.size(0);
  if (values[0] != 0) {
    fail("ValueError", op, name, " begins with ", int64_t{values[0]}, "; it must begin with 0");
  }
  for (int64_t i = 1; i < count; ++i) {
    const int64_t length = int64_t{values[i]} - values[i - 1];
    if (length < 0) {
      fail("ValueError", op, name, " falls from ", int64_t{values[i - 1]}, " to ", int64_t{values[i]}, " at element ",
           i, "; it must not fall");
    }
    if (length > longest) {
      fail("ValueError", op, longest_name, " is ", longest, " but sequence ", i - 1, " has ", length,
           " tokens; it must be at least the longest");
    }
  }
  if (values[count - 1] > total) {
    fail("ValueError", op, name, " ends with ", int64_t{values[count - 1]}, " but there are ", total,
         " tokens; it must end with at most that");
  }
}

Tensor dense_offsets(const char* op, const char* name, const Tensor& offsets) {
  return offsets.size(0) <= 1 || offsets.stride(0) == 1 ? offsets : dense_copy(op, name, offsets);
}

// The strides of (tokens, heads, head_dim).
HeadStrides varlen_strides(const Tensor& tensor) {
  const auto step = [&](int i) { return tensor.size(i) == 1 ? 0 : tensor.stride(i); };
  return {0, step(1), step(0)};
}

template <bool cuda>
std::tuple<Tensor, Tensor> varlen(Tensor q_given, Tensor k_given, Tensor v_given, Tensor cu_seqlens_q,
                                  Tensor cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k, bool is_causal,
                                  std::optional<double> scale, bool bottom_right, int64_t window_left,
                                  int64_t window_right, bool return_lse) {
  const char* op = "flash_attention_varlen";
  check_varlen(op, q_given, k_given, v_given);
  check_offsets(op, "cu_seqlens_q", cu_seqlens_q, q_given);
  check_offsets(op, "cu_seqlens_k", cu_seqlens_k, q_given);
  if (cu_seqlens_q.size(0) != cu_seqlens_k.size(0)) {
    fail("ValueError", op, "cu_seqlens_k has ", cu_seqlens_k.size(0), " elements but cu_seqlens_q has ",
         cu_seqlens_q.size(0), "; they must be as many");
  }
  check_sequence(op, "the number of q's tokens", q_given.size(0));
  check_sequence(op, "the number of k's tokens", k_given.size(0));
  AttentionOptions options = options_of(op, {is_causal, bottom_right, window_left, window_right});
  const int64_t total = q_given.size(0), heads = q_given.size(1), head_dim = q_given.size(2);
  const int32_t longest_q = std::min(check_longest(op, "max_seqlen_q", max_seqlen_q), static_cast<int32_t>(total));
  const int32_t longest_kv =
      std::min(check_longest(op, "max_seqlen_k", max_seqlen_k), static_cast<int32_t>(k_given.size(0)));
  const float factor = attention_scale(op, scale, head_dim);
  const OnDeviceOf<cuda> on_device(q_given);
  const Tensor offsets_q = dense_offsets(op, "cu_seqlens_q", cu_seqlens_q),
               offsets_k = dense_offsets(op, "cu_seqlens_k", cu_seqlens_k);
  if constexpr (!cuda) {
    check_offset_values(op, "cu_seqlens_q", offsets_q, total, max_seqlen_q, "max_seqlen_q");
    check_offset_values(op, "cu_seqlens_k", offsets_k, k_given.size(0), max_seqlen_k, "max_seqlen_k");
  }
  Tensor out = allocate(op, "output", q_given, q_given.scalar_type(), {total, heads, head_dim});
  Tensor lse = allocate_lse(op, q_given, return_lse, {heads, total});
  const int64_t sequences = offsets_q.size(0) - 1;
  if (out.numel() == 0 || sequences == 0 || max_seqlen_q == 0) {
    return {out, lse};
  }
  const auto unit = [&](const char* name, const Tensor& tensor) {
    return tensor.size(2) <= 1 || tensor.stride(2) == 1 ? tensor : dense_copy(op, name, tensor);
  };
  const Tensor q = unit("q", q_given), k = unit("k", k_given), v = unit("v", v_given);
  AttentionArguments arguments = attention_arguments(q, k, v, out, heads, k.size(1), factor);
  arguments.batch = static_cast<int32_t>(sequences);
  arguments.seq_q = longest_q;
  arguments.seq_kv = longest_kv;
  arguments.q_stride = varlen_strides(q);
  arguments.k_stride = varlen_strides(k);
  arguments.v_stride = varlen_strides(v);
  arguments.out_stride = {0, head_dim, heads * head_dim};
  options.cu_seqlens_q = static_cast<const int32_t*>(offsets_q.const_data_ptr());
  options.cu_seqlens_kv = static_cast<const int32_t*>(offsets_k.const_data_ptr());
  options.total_q = static_cast<int32_t>(total);
  options.total_kv = static_cast<int32_t>(k.size(0));
  if (return_lse) {
    options.lse = static_cast<float*>(lse.mutable_data_ptr());
    options.lse_stride_head = total;
  }
  launch<cuda>(op, arguments, options, q);
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
