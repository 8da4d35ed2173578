// Checks of the attention operators' arguments, and what the kernels take instead of them. Include after tensors.h,
// which sets the ABI's version.
#pragma once

#include <cmath>
#include <optional>

#include "tensors.h"

namespace cuda_llm_ops {

inline constexpr int64_t kMaxHeadDim = 256;

// The kernels read head_dim with stride 1; any other layout of it is copied.
inline Tensor with_unit_last_stride(const char* op, const char* name, const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  const bool unit = tensor.size(last) <= 1 || tensor.stride(last) == 1;
  return unit ? tensor : dense_copy(op, name, tensor);
}

// A view of the first `columns` of every row.
inline Tensor first_columns(const Tensor& tensor, int64_t columns) {
  const int64_t rank = tensor.dim();
  int64_t sizes[4] = {};
  std::copy_n(tensor.sizes().data(), rank - 1, sizes);
  sizes[rank - 1] = columns;
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(tensor.get(), rank, sizes, tensor.strides().data(),
                                                        tensor.storage_offset(), &view));
  return Tensor(view);
}

inline void copy_into(const char* op, const char* name, const Tensor& to, const Tensor& from) {
  if (aoti_torch_copy_(to.get(), from.get(), 0) != TORCH_SUCCESS) {
    fail("RuntimeError", op, "torch could not copy ", name, " of shape ", shape_text(from));
  }
}

inline Tensor allocate_like(const char* op, const std::string& what, const Tensor& like, int64_t columns) {
  const int64_t rank = like.dim();
  int64_t sizes[4] = {};
  std::copy_n(like.sizes().data(), rank - 1, sizes);
  sizes[rank - 1] = columns;
  return allocate(op, what.c_str(), like, like.scalar_type(), {sizes, static_cast<size_t>(rank)});
}

// A dense copy whose rows have `columns` elements: zeros behind its own.
inline Tensor padded_copy(const char* op, const char* name, const Tensor& tensor, int64_t columns) {
  const Tensor wide = zero(op, allocate_like(op, std::string("wide copy of ") + name, tensor, columns));
  copy_into(op, name, first_columns(wide, tensor.size(tensor.dim() - 1)), tensor);
  return wide;
}

// A dimension of size 1 is never stepped over: stride 0 spares the kernels its arbitrary value.
inline HeadStrides head_strides(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const auto step = [&](int i) { return sizes[i] == 1 ? 0 : strides[i]; };
  return {step(0), step(1), step(2)};
}

inline float attention_scale(const char* op, std::optional<double> scale, int64_t head_dim) {
  if (!scale.has_value()) {
    return head_dim == 0 ? 1.0f : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
  if (!std::isfinite(*scale) || *scale < 0.0) {
    fail("ValueError", op, "scale is ", *scale, "; it must be finite and not negative");
  }
  return to_float(op, "scale", *scale);
}

// The arguments that all layouts have in common; sizes and strides of batch and sequence are the caller's.
inline AttentionArguments attention_arguments(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                                              int64_t heads, int64_t kv_heads, float scale) {
  AttentionArguments arguments;
  arguments.q = q.const_data_ptr();
  arguments.k = k.const_data_ptr();
  arguments.v = v.const_data_ptr();
  arguments.out = out.mutable_data_ptr();
  arguments.heads = static_cast<int32_t>(heads);
  arguments.kv_heads = static_cast<int32_t>(kv_heads);
  arguments.head_dim = static_cast<int32_t>(q.size(q.dim() - 1));
  arguments.value_dim = static_cast<int32_t>(v.size(v.dim() - 1));
  arguments.scale = scale;
  arguments.type = kernel_type(q.scalar_type());
  return arguments;
}

// Of tensors (batch, heads, sequence, head_dim); `out` is dense.
inline AttentionArguments batched_arguments(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                                            float scale) {
  AttentionArguments arguments = attention_arguments(q, k, v, out, q.size(1), k.size(1), scale);
  arguments.batch = static_cast<int32_t>(q.size(0));
  arguments.seq_q = static_cast<int32_t>(q.size(2));
  arguments.seq_kv = static_cast<int32_t>(k.size(2));
  arguments.q_stride = head_strides(q);
  arguments.k_stride = head_strides(k);
  arguments.v_stride = head_strides(v);
  arguments.out_stride = {q.size(1) * q.size(2) * v.size(3), q.size(2) * v.size(3), v.size(3)};
  return arguments;
}

// v and the output as the kernels take them. Most of those of a GPU need a v as wide as q and k: a narrower one gets zeros
// behind its columns, and its output has as many, of which finish() keeps the first.
template <bool cuda>
class Values {
 public:
  Values(const char* op, const Tensor& v, const Tensor& result)
      : op_(op), result_(result), v_(with_unit_last_stride(op, "v", v)), out_(result) {}

  // make(v, out) makes the arguments of the launch, `takes` says whether its kernel takes them with a narrow v.
  template <typename Make, typename Takes>
  AttentionArguments arguments(const Make& make, const Takes& takes) {
    const AttentionArguments narrow = make(v_, out_);
    if (!cuda || narrow.value_dim == narrow.head_dim || takes(narrow)) return narrow;
    v_ = padded_copy(op_, "v", v_, narrow.head_dim);
    out_ = allocate_like(op_, "wide output", result_, narrow.head_dim);
    widened_ = true;
    return make(v_, out_);
  }
  // Behind the launch.
  void finish() const {
    if (widened_) copy_into(op_, "the output", result_, first_columns(out_, result_.size(result_.dim() - 1)));
  }

 private:
  const char* op_;
  bool widened_ = false;
  Tensor result_, v_, out_;
};

inline bool takes_narrow_values([[maybe_unused]] const AttentionArguments& arguments,
                                [[maybe_unused]] const AttentionOptions* options) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
  return cuda::takes_narrow_values(arguments, options);
#else
  return true;
#endif
}

#ifdef CUDA_LLM_OPS_WITH_CUDA
// Launches flash_attention with the workspace that it needs, if any.
inline void launch_flash_attention(const char* op, AttentionArguments arguments, const Tensor& q) {
  launch_with_workspace(op, "aligned copies of the inputs, or parts of the output", q,
                        cuda::flash_attention_workspace_bytes(arguments), arguments, cuda::flash_attention);
}
#endif

// What both layouts require of each tensor alone.
inline void check_tensors(const char* op, const Tensor* const (&tensors)[3], int64_t rank, const char* layout) {
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    check_defined(op, names[i], *tensors[i]);
    check_rank(op, names[i], *tensors[i], rank, layout);
    check_dtype(op, names[i], *tensors[i], true);
    check_same_dtype(op, names[i], *tensors[i], "q", *tensors[0]);
    check_same_device(op, names[i], *tensors[i], "q", *tensors[0]);
  }
}

inline void check_value_dim(const char* op, int64_t head_dim, int64_t value_dim) {
  if (value_dim > head_dim) {
    fail("NotImplementedError", op, "v has head_dim ", value_dim, " and q has ", head_dim,
         "; that of v must not be larger");
  }
}

// What both layouts require of the number of heads, which is the size of dimension `heads_dim`, of head_dim and of
// extents.
inline void check_heads(const char* op, const Tensor* const (&tensors)[3], int64_t heads_dim) {
  const char* names[] = {"q", "k", "v"};
  const Tensor &q = *tensors[0], &k = *tensors[1], &v = *tensors[2];
  const int64_t head_dim = q.size(q.dim() - 1), value_dim = v.size(v.dim() - 1), heads = q.size(heads_dim),
                kv_heads = k.size(heads_dim);
  if (head_dim > kMaxHeadDim) {
    fail("NotImplementedError", op, "q has head_dim ", head_dim, "; it must be at most ", kMaxHeadDim);
  }
  check_value_dim(op, head_dim, value_dim);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", op, "q has ", heads, " heads and k has ", kv_heads,
         "; the heads of q must be a multiple of the heads of k and v");
  }
  for (int i = 0; i < 3; ++i) {
    check_extent(op, names[i], *tensors[i]);
  }
  check_output_elements(op, q.sizes());
}

inline void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor* const tensors[3] = {&q, &k, &v};
  const char* names[] = {"q", "k", "v"};
  check_tensors(op, tensors, 4, "(batch, heads, sequence, head_dim)");
  const auto same = [&](int i, const char* of, int64_t size, const char* as, int64_t expected) {
    if (size != expected) {
      fail("ValueError", op, names[i], " has ", of, " ", size, " but ", as, " has ", expected, " (", names[i], " ",
           shape_text(*tensors[i]), ", q ", shape_text(q), ", k ", shape_text(k), "); they must be equal");
    }
  };
  same(1, "batch", k.size(0), "q", q.size(0));
  same(2, "batch", v.size(0), "q", q.size(0));
  same(1, "head_dim", k.size(3), "q", q.size(3));
  same(2, "heads", v.size(1), "k", k.size(1));
  same(2, "sequence", v.size(2), "k", k.size(2));
  check_heads(op, tensors, 1);
}

}  // namespace cuda_llm_ops
