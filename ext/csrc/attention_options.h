// AttentionOptions from the arguments of an operator: the mask, and the offsets of packed sequences. Include after
// tensors.h.
#pragma once

#include "attention_checks.h"

namespace cuda_llm_ops {

struct Mask {
  bool is_causal, bottom_right;
  int64_t window_left, window_right;  // -1: no limit
};

inline AttentionOptions options_of(const char* op, const Mask& mask) {
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

inline void check_sequence(const char* op, const char* name, int64_t length) {
  if (length > kMaxSequence) {
    fail("NotImplementedError", op, name, " is ", length, "; with options it must be at most ", int64_t{kMaxSequence});
  }
}

// A window wider than the sequence is no window.
inline void widen(AttentionOptions& options, int64_t seq_q, int64_t seq_kv) {
  const int64_t diagonal = options.bottom_right ? seq_kv - seq_q : 0;
  if (options.left >= seq_q - 1 + diagonal) {
    options.left = kEveryKey;
  }
  if (options.right >= seq_kv - 1 - diagonal) {
    options.right = kEveryKey;
  }
}

// The same. Returns whether the plain operator can compute what remains.
inline bool simplify(AttentionOptions& options, AttentionArguments& arguments) {
  widen(options, arguments.seq_q, arguments.seq_kv);
  const int64_t diagonal = options.bottom_right ? int64_t{arguments.seq_kv} - arguments.seq_q : 0;
  arguments.causal = options.right != kEveryKey;
  return options.lse == nullptr && options.left == kEveryKey && arguments.seq_kv > 0 &&
         (options.right == kEveryKey || options.right + diagonal == 0);
}

inline void check_varlen(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor* const tensors[3] = {&q, &k, &v};
  check_tensors(op, tensors, 3, "(tokens of all sequences, heads, head_dim)");
  if (k.size(2) != q.size(2)) {
    fail("ValueError", op, "k has head_dim ", k.size(2), " but q has ", q.size(2), "; they must be equal");
  }
  if (v.size(0) != k.size(0) || v.size(1) != k.size(1)) {
    fail("ValueError", op, "v has shape ", shape_text(v), " but k has ", shape_text(k),
         "; they must be equal but for head_dim");
  }
  check_heads(op, tensors, 1);
}

inline void check_offsets(const char* op, const char* name, const Tensor& offsets, const Tensor& q) {
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

inline int32_t check_longest(const char* op, const char* name, int64_t longest) {
  if (longest < 0) {
    fail("ValueError", op, name, " is ", longest, "; it must not be negative");
  }
  check_sequence(op, name, longest);
  return static_cast<int32_t>(longest);
}

// Only offsets in the host's memory can be checked without waiting for the device.
inline void check_offset_values(const char* op, const char* name, const Tensor& offsets, int64_t total, int64_t longest,
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

inline Tensor dense_offsets(const char* op, const char* name, const Tensor& offsets) {
  return offsets.size(0) <= 1 || offsets.stride(0) == 1 ? offsets : dense_copy(op, name, offsets);
}

// The strides of (tokens, heads, head_dim).
inline HeadStrides varlen_strides(const Tensor& tensor) {
  const auto step = [&](int i) { return tensor.size(i) == 1 ? 0 : tensor.stride(i); };
  return {0, step(1), step(0)};
}

// Packed sequences as the kernels take them. Checks what check_varlen does not.
struct Packed {
  Tensor offsets_q, offsets_k;
  int64_t sequences;
  int32_t longest_q, longest_kv;

  void describe(AttentionOptions& options, const Tensor& q, const Tensor& k) const {
    options.cu_seqlens_q = static_cast<const int32_t*>(offsets_q.const_data_ptr());
    options.cu_seqlens_kv = static_cast<const int32_t*>(offsets_k.const_data_ptr());
    options.total_q = static_cast<int32_t>(q.size(0));
    options.total_kv = static_cast<int32_t>(k.size(0));
  }
};

template <bool cuda>
Packed packed_sequences(const char* op, const Tensor& q, const Tensor& k, const Tensor& cu_seqlens_q,
                        const Tensor& cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k) {
  check_offsets(op, "cu_seqlens_q", cu_seqlens_q, q);
  check_offsets(op, "cu_seqlens_k", cu_seqlens_k, q);
  if (cu_seqlens_q.size(0) != cu_seqlens_k.size(0)) {
    fail("ValueError", op, "cu_seqlens_k has ", cu_seqlens_k.size(0), " elements but cu_seqlens_q has ",
         cu_seqlens_q.size(0), "; they must be as many");
  }
  check_sequence(op, "the number of q's tokens", q.size(0));
  check_sequence(op, "the number of k's tokens", k.size(0));
  const int32_t longest_q = check_longest(op, "max_seqlen_q", max_seqlen_q);
  const int32_t longest_kv = check_longest(op, "max_seqlen_k", max_seqlen_k);
  const OnDeviceOf<cuda> on_device(q);
  const Packed packed{dense_offsets(op, "cu_seqlens_q", cu_seqlens_q), dense_offsets(op, "cu_seqlens_k", cu_seqlens_k),
                      cu_seqlens_q.size(0) - 1, std::min(longest_q, static_cast<int32_t>(q.size(0))),
                      std::min(longest_kv, static_cast<int32_t>(k.size(0)))};
  if constexpr (!cuda) {
    check_offset_values(op, "cu_seqlens_q", packed.offsets_q, q.size(0), max_seqlen_q, "max_seqlen_q");
    check_offset_values(op, "cu_seqlens_k", packed.offsets_k, k.size(0), max_seqlen_k, "max_seqlen_k");
  }
  return packed;
}

// CUDA counts blocks in 31 bits.
inline void check_blocks(const char* op, int64_t seq, int64_t heads, int64_t batch) {
  constexpr int64_t kFewestRows = 16;  // of a block of any kernel
  if ((seq + kFewestRows - 1) / kFewestRows * heads > kMaxElements / batch) {
    fail("NotImplementedError", op, "max_seqlen_q is ", seq, " for ", batch, " sequences of ", heads,
         " heads; their product must be below 2**35");
  }
}

}  // namespace cuda_llm_ops
