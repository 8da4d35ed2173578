// The operators: schemas, argument checks and dispatch to the kernels of kernels.h, through torch's stable ABI only.
//
// Every check of an argument lives here, so that a caller of torch.ops.cuda_llm_ops is protected as well; the Python
// face adds what the stable ABI cannot see (does an input require grad) and the class of the error.
#define TORCH_TARGET_VERSION 0x020a000000000000ULL  // runs with torch 2.10 and later
#ifdef CUDA_LLM_OPS_WITH_CUDA
#define USE_CUDA  // declares the CUDA part of the shim
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/shim_utils.h>

#include "checks.h"
#include "kernels.h"

namespace cuda_llm_ops {
namespace {

constexpr int64_t kMaxHeadDim = 256;

enum class Attention { naive, tiled, flash };

const char* op_name(Attention kind) {
  switch (kind) {
    case Attention::naive: return "naive_attention";
    case Attention::tiled: return "tiled_attention";
    default: return "flash_attention";
  }
}

ScalarType kernel_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::Half: return ScalarType::float16;
    case Dtype::BFloat16: return ScalarType::bfloat16;
    default: return ScalarType::float32;
  }
}

void check_dtype(const char* op, const char* name, const Tensor& tensor, bool allow_float32) {
  const Dtype dtype = tensor.scalar_type();
  if (dtype == Dtype::Half || dtype == Dtype::BFloat16 || (allow_float32 && dtype == Dtype::Float)) {
    return;
  }
  fail("TypeError", op, name, " is ", dtype_text(dtype), "; it must be ", allow_float32 ? "float32, " : "",
       "float16 or bfloat16");
}

using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// A dense row-major tensor on the device of `like`. Straight from the C shim, here and below: torch's C++ wrappers
// report an allocation that fails through iostreams, see checks.h.
Tensor allocate(const char* op, const char* what, const Tensor& like, Dtype dtype, Sizes sizes) {
  constexpr size_t kMaxRank = 4;
  int64_t strides[kMaxRank] = {};
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  const int32_t code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle handle = nullptr;
  if (aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides, code, device_type,
                               like.get_device_index(), &handle) != TORCH_SUCCESS) {
    fail("OutOfMemoryError", op, "cannot allocate the ", what, " of shape ",
         shape_text(sizes.data(), static_cast<int64_t>(sizes.size())), " and dtype ", dtype_text(dtype), " on ",
         device_text(like));
  }
  return Tensor(handle);
}

const Tensor& zero(const char* op, const Tensor& tensor) {
  if (aoti_torch_zero_(tensor.get()) != TORCH_SUCCESS) {
    fail("RuntimeError", op, "torch could not fill a tensor with zeros");
  }
  return tensor;
}

Tensor dense_copy(const char* op, const char* name, const Tensor& tensor) {
  if (tensor.numel() > kMaxElements) {
    fail("ValueError", op, name, " of shape ", shape_text(tensor), " and strides ",
         shape_text(tensor.strides().data(), tensor.dim()),
         " must be made contiguous, which needs fewer than 2**31 elements");
  }
  const std::string what = std::string("contiguous copy of ") + name;
  const Tensor copy = allocate(op, what.c_str(), tensor, tensor.scalar_type(), tensor.sizes());
  if (aoti_torch_copy_(copy.get(), tensor.get(), 0) != TORCH_SUCCESS) {
    fail("RuntimeError", op, "torch could not copy ", name, " of shape ", shape_text(tensor));
  }
  return copy;
}

void check_output_elements(const char* op, Sizes sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements) {
      fail("ValueError", op, "the output would have shape ",
           shape_text(sizes.data(), static_cast<int64_t>(sizes.size())), "; it must have fewer than 2**31 elements");
    }
  }
}

void parallel(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  torch::stable::parallel_for(begin, end, grain, body);
}

#ifdef CUDA_LLM_OPS_WITH_CUDA
void* current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return stream;
}

void check_launch(const char* op, const char* refusal) {
  if (refusal == nullptr) {
    return;
  }
  if (std::strstr(refusal, "no kernel image") != nullptr) {
    fail("NotImplementedError", op, "the device's compute capability has no code in this build; build_info() names "
         "the architectures it has, and it needs 8.0 or newer");
  }
  fail("RuntimeError", op, "CUDA refused the launch: ", refusal);
}
#endif

// ---- attention ------------------------------------------------------------------------------------------------------

// The kernels read head_dim with stride 1; any other layout of it is copied.
Tensor with_unit_last_stride(const char* op, const char* name, const Tensor& tensor) {
  const bool unit = tensor.size(3) <= 1 || tensor.stride(3) == 1;
  return unit ? tensor : dense_copy(op, name, tensor);
}

// A dimension of size 1 is never stepped over: stride 0 spares the kernels its arbitrary value.
HeadStrides head_strides(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const auto step = [&](int i) { return sizes[i] == 1 ? 0 : strides[i]; };
  return {step(0), step(1), step(2)};
}

float attention_scale(const char* op, std::optional<double> scale, int64_t head_dim) {
  if (!scale.has_value()) {
    return head_dim == 0 ? 1.0f : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
  if (!std::isfinite(*scale) || *scale < 0.0) {
    fail("ValueError", op, "scale is ", *scale, "; it must be finite and not negative");
  }
  return to_float(op, "scale", *scale);
}

void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  constexpr const char* kLayout = "(batch, heads, sequence, head_dim)";
  const Tensor* tensors[] = {&q, &k, &v};
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    check_defined(op, names[i], *tensors[i]);
    check_rank(op, names[i], *tensors[i], 4, kLayout);
    check_dtype(op, names[i], *tensors[i], true);
    check_same_dtype(op, names[i], *tensors[i], "q", q);
    check_same_device(op, names[i], *tensors[i], "q", q);
  }
  const auto same = [&](int i, const char* of, int64_t size, const char* as, int64_t expected) {
    if (size != expected) {
      fail("ValueError", op, names[i], " has ", of, " ", size, " but ", as, " has ", expected, " (",
           names[i], " ", shape_text(*tensors[i]), ", q ", shape_text(q), ", k ", shape_text(k),
           "); they must be equal");
    }
  };
  same(1, "batch", k.size(0), "q", q.size(0));
  same(2, "batch", v.size(0), "q", q.size(0));
  same(1, "head_dim", k.size(3), "q", q.size(3));
  same(2, "head_dim", v.size(3), "q", q.size(3));
  same(2, "heads", v.size(1), "k", k.size(1));
  same(2, "sequence", v.size(2), "k", k.size(2));
  if (q.size(3) > kMaxHeadDim) {
    fail("NotImplementedError", op, "q has head_dim ", q.size(3), "; it must be at most ", kMaxHeadDim);
  }
  const int64_t heads = q.size(1), kv_heads = k.size(1);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", op, "q has ", heads, " heads and k has ", kv_heads,
         "; the heads of q must be a multiple of the heads of k and v");
  }
  for (int i = 0; i < 3; ++i) {
    check_extent(op, names[i], *tensors[i]);
  }
  check_output_elements(op, {q.size(0), q.size(1), q.size(2), q.size(3)});
}

template <bool cuda>
Tensor attention(Attention kind, const Tensor& q_given, const Tensor& k_given, const Tensor& v_given, bool is_causal,
                 std::optional<double> scale) {
  const char* op = op_name(kind);
  check_attention(op, q_given, k_given, v_given);
  const float factor = attention_scale(op, scale, q_given.size(3));
#ifdef CUDA_LLM_OPS_WITH_CUDA
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if constexpr (cuda) {
    guard.emplace(q_given.get_device_index());
  }
#endif
  const Dtype dtype = q_given.scalar_type();
  const int64_t batch = q_given.size(0), heads = q_given.size(1), seq_q = q_given.size(2), head_dim = q_given.size(3);
  Tensor out = allocate(op, "output", q_given, dtype, {batch, heads, seq_q, head_dim});
  if (out.numel() == 0) {
    return out;
  }
  if (k_given.size(2) == 0) {  // no key to look at: zeros, as SDPA gives
    return zero(op, out);
  }
  const Tensor q = with_unit_last_stride(op, "q", q_given), k = with_unit_last_stride(op, "k", k_given),
               v = with_unit_last_stride(op, "v", v_given);

  AttentionArguments arguments;
  arguments.q = q.const_data_ptr();
  arguments.k = k.const_data_ptr();
  arguments.v = v.const_data_ptr();
  arguments.out = out.mutable_data_ptr();
  arguments.batch = static_cast<int32_t>(batch);
  arguments.heads = static_cast<int32_t>(heads);
  arguments.kv_heads = static_cast<int32_t>(k.size(1));
  arguments.seq_q = static_cast<int32_t>(seq_q);
  arguments.seq_kv = static_cast<int32_t>(k.size(2));
  arguments.head_dim = static_cast<int32_t>(head_dim);
  arguments.q_stride = head_strides(q);
  arguments.k_stride = head_strides(k);
  arguments.v_stride = head_strides(v);
  arguments.out_stride = {heads * seq_q * head_dim, seq_q * head_dim, head_dim};
  arguments.scale = factor;
  arguments.causal = is_causal;
  arguments.type = kernel_type(dtype);

  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    void* stream = current_stream(q);
    std::optional<Tensor> workspace;
    if (kind == Attention::naive) {
      const int64_t bytes = static_cast<int64_t>(cuda::naive_attention_workspace_bytes(arguments));
      workspace = allocate(op, "score matrix", q, Dtype::Byte, {bytes});
      arguments.workspace = workspace->mutable_data_ptr();
    }
    check_launch(op, kind == Attention::naive   ? cuda::naive_attention(arguments, stream)
                     : kind == Attention::tiled ? cuda::tiled_attention(arguments, stream)
                                                : cuda::flash_attention(arguments, stream));
#endif
  } else {
    switch (kind) {
      case Attention::naive: cpu::naive_attention(arguments, parallel); break;
      case Attention::tiled: cpu::tiled_attention(arguments, parallel); break;
      case Attention::flash: cpu::flash_attention(arguments, parallel); break;
    }
  }
  return out;
}

// ---- gemm -----------------------------------------------------------------------------------------------------------

// An operand as rows x columns of one batch, whatever its transposition.
struct Matrix {
  int64_t batch = 0, rows = 0, columns = 0;  // batch 0: a 2-D operand, shared by the other's batch
  int64_t stride_batch = 0, stride_row = 0, stride_column = 0;
};

Matrix matrix(const Tensor& tensor, bool transposed) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const int64_t rank = tensor.dim();
  Matrix made{rank == 3 ? sizes[0] : 0,  sizes[rank - 2], sizes[rank - 1], rank == 3 ? strides[0] : 0,
              strides[rank - 2], strides[rank - 1]};
  if (transposed) {
    std::swap(made.rows, made.columns);
    std::swap(made.stride_row, made.stride_column);
  }
  return made;
}

// The kernels want a stride of 1 along rows or along columns. Along a dimension of size 1 any stride will do, so it
// gets one that keeps vector loads possible.
bool normalize(Matrix& operand) {
  constexpr int64_t kAligned = 64;
  const auto leading = [](int64_t size) { return (size + kAligned - 1) / kAligned * kAligned; };
  if (operand.batch <= 1) {
    operand.stride_batch = 0;
  }
  if (operand.columns == 1 && operand.stride_row != 1) {
    operand.stride_column = 1;
  } else if (operand.rows == 1 && operand.stride_column != 1) {
    operand.stride_row = 1;
  } else if (operand.rows == 1) {
    operand.stride_row = leading(operand.columns);
  } else if (operand.columns == 1) {
    operand.stride_column = leading(operand.rows);
  }
  return operand.stride_row == 1 || operand.stride_column == 1;
}

void check_matrix(const char* op, const char* name, const Tensor& tensor) {
  check_defined(op, name, tensor);
  if (tensor.dim() != 2 && tensor.dim() != 3) {
    fail("ValueError", op, name, " has ", tensor.dim(), " dimensions ", shape_text(tensor),
         "; it must have 2: (rows, columns), or 3: (batch, rows, columns)");
  }
}

struct GemmOptions {
  const char* op;
  bool tensor_core = false;  // 16-bit in, float32 out
  double alpha = 1.0, beta = 0.0;
  bool trans_a = false, trans_b = false;
};

template <bool cuda>
Tensor gemm(const GemmOptions& options, Tensor a, Tensor b, const std::optional<Tensor>& c) {
  const char* op = options.op;
  check_matrix(op, "a", a);
  check_matrix(op, "b", b);
  check_dtype(op, "a", a, !options.tensor_core);
  check_dtype(op, "b", b, !options.tensor_core);
  check_same_dtype(op, "b", b, "a", a);
  check_same_device(op, "b", b, "a", a);
  Matrix left = matrix(a, options.trans_a), right = matrix(b, options.trans_b);
  if (left.columns != right.rows) {
    fail("ValueError", op, "a", options.trans_a ? " (transposed)" : "", " has inner size ", left.columns, " but b",
         options.trans_b ? " (transposed)" : "", " has ", right.rows, " (a ", shape_text(a), ", b ", shape_text(b),
         "); they must be equal");
  }
  const bool batched = a.dim() == 3 || b.dim() == 3;
  if (a.dim() == 3 && b.dim() == 3 && left.batch != right.batch) {
    fail("ValueError", op, "a has batch ", left.batch, " but b has ", right.batch, " (a ", shape_text(a), ", b ",
         shape_text(b), "); they must be equal, or one of them 2-D");
  }
  check_extent(op, "a", a);
  check_extent(op, "b", b);
  const int64_t batch = !batched ? 1 : a.dim() == 3 ? left.batch : right.batch;
  const int64_t m = left.rows, n = right.columns, k = left.columns;
  batched ? check_output_elements(op, {batch, m, n}) : check_output_elements(op, {m, n});

  const Dtype out_dtype = options.tensor_core ? Dtype::Float : a.scalar_type();
  const float alpha = to_float(op, "alpha", options.alpha), beta = to_float(op, "beta", options.beta);
  if (c.has_value()) {
    const int64_t expected[] = {batch, m, n};
    const int64_t* sizes = batched ? expected : expected + 1;
    const int64_t rank = batched ? 3 : 2;
    if (c->dim() != rank || std::memcmp(c->sizes().data(), sizes, rank * sizeof(int64_t)) != 0) {
      fail("ValueError", op, "c has shape ", shape_text(*c), "; it must have the shape of the output, ",
           shape_text(sizes, rank), " (expand() it where it is to be broadcast)");
    }
    if (c->scalar_type() != out_dtype) {
      fail("TypeError", op, "c is ", dtype_text(c->scalar_type()), "; it must be ", dtype_text(out_dtype),
           ", the dtype of the output");
    }
    check_same_device(op, "c", *c, "a", a);
    check_extent(op, "c", *c);
  } else if (beta != 0.0f) {
    fail("ValueError", op, "beta is ", options.beta, " but c is None; c must be given where beta is not 0");
  }

#ifdef CUDA_LLM_OPS_WITH_CUDA
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if constexpr (cuda) {
    guard.emplace(a.get_device_index());
  }
#endif
  Tensor out = batched ? allocate(op, "output", a, out_dtype, {batch, m, n})
                       : allocate(op, "output", a, out_dtype, {m, n});
  if (out.numel() == 0) {
    return out;
  }
  // BLAS's convention, which torch.addmm keeps: where alpha is 0 the product is not read, where beta is 0 neither is c.
  const bool no_product = k == 0 || alpha == 0.0f;
  if (no_product && beta == 0.0f) {
    return zero(op, out);
  }
  if (no_product) {  // beta * c, through the same kernel: a product of one column of zeros with one row of zeros
    a = zero(op, allocate(op, "column of zeros", a, a.scalar_type(), {m, 1}));
    b = zero(op, allocate(op, "row of zeros", b, b.scalar_type(), {1, n}));
    left = matrix(a, false);
    right = matrix(b, false);
  }
  if (!normalize(left)) {
    a = dense_copy(op, "a", a);
    left = matrix(a, options.trans_a);
    normalize(left);
  }
  if (!normalize(right)) {
    b = dense_copy(op, "b", b);
    right = matrix(b, options.trans_b);
    normalize(right);
  }

  GemmArguments arguments;
  arguments.a = a.const_data_ptr();
  arguments.b = b.const_data_ptr();
  arguments.out = out.mutable_data_ptr();
  arguments.batch = static_cast<int32_t>(batch);
  arguments.m = static_cast<int32_t>(m);
  arguments.n = static_cast<int32_t>(n);
  arguments.k = static_cast<int32_t>(left.columns);
  arguments.a_stride_batch = left.stride_batch;
  arguments.a_stride_m = left.stride_row;
  arguments.a_stride_k = left.stride_column;
  arguments.b_stride_batch = right.stride_batch;
  arguments.b_stride_k = right.stride_row;
  arguments.b_stride_n = right.stride_column;
  arguments.alpha = no_product ? 0.0f : alpha;
  arguments.beta = beta;
  arguments.in_type = kernel_type(a.scalar_type());
  arguments.out_type = kernel_type(out_dtype);
  if (beta != 0.0f) {
    const Matrix addend = matrix(*c, false);
    arguments.c = c->const_data_ptr();
    arguments.c_stride_batch = batch == 1 ? 0 : addend.stride_batch;
    arguments.c_stride_m = addend.stride_row;
    arguments.c_stride_n = addend.stride_column;
  }

  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    void* stream = current_stream(a);
    check_launch(op, options.tensor_core ? cuda::tensor_core_gemm(arguments, stream) : cuda::gemm(arguments, stream));
#endif
  } else if (options.tensor_core) {
    cpu::tensor_core_gemm(arguments, parallel);
  } else {
    cpu::gemm(arguments, parallel);
  }
  return out;
}

// ---- registration ---------------------------------------------------------------------------------------------------

template <bool cuda, Attention kind>
Tensor attention_op(Tensor q, Tensor k, Tensor v, bool is_causal, std::optional<double> scale) {
  return attention<cuda>(kind, q, k, v, is_causal, scale);
}

template <bool cuda>
Tensor gemm_op(Tensor a, Tensor b, double alpha, double beta, std::optional<Tensor> c, bool trans_a, bool trans_b) {
  return gemm<cuda>({"gemm", false, alpha, beta, trans_a, trans_b}, std::move(a), std::move(b), c);
}

template <bool cuda>
Tensor tensor_core_gemm_op(Tensor a, Tensor b) {
  return gemm<cuda>({"tensor_core_gemm", true}, std::move(a), std::move(b), std::nullopt);
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("naive_attention", TORCH_BOX((&attention_op<cuda, Attention::naive>)));
  library.impl("tiled_attention", TORCH_BOX((&attention_op<cuda, Attention::tiled>)));
  library.impl("flash_attention", TORCH_BOX((&attention_op<cuda, Attention::flash>)));
  library.impl("gemm", TORCH_BOX(&gemm_op<cuda>));
  library.impl("tensor_core_gemm", TORCH_BOX(&tensor_core_gemm_op<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY(cuda_llm_ops, library) {
  library.def("naive_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
  library.def("tiled_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
  library.def("flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor");
  library.def(
      "gemm(Tensor a, Tensor b, float alpha=1.0, float beta=0.0, Tensor? c=None, bool trans_a=False, "
      "bool trans_b=False) -> Tensor");
  library.def("tensor_core_gemm(Tensor a, Tensor b) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
