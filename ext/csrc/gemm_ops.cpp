// The GEMM operators: schemas, argument checks and dispatch to the kernels of kernels.h, through torch's stable ABI
// only.
//
// Every check of an argument lives in the *_ops.cpp, so that a caller of torch.ops.cuda_llm_ops is protected as well;
// the Python face adds what the stable ABI cannot see (does an input require grad) and the class of the error.
#include "tensors.h"

#include <utility>

namespace cuda_llm_ops {
namespace {

// An operand as rows x columns of one batch, whatever its transposition.
struct Matrix {
  int64_t batch = 0, rows = 0, columns = 0;  // batch 0: a 2-D operand, shared by the other's batch
  int64_t stride_batch = 0, stride_row = 0, stride_column = 0;
};

Matrix matrix(const Tensor& tensor, bool transposed) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const int64_t rank = tensor.dim();
  Matrix made{rank == 3 ? sizes[0] : 0,   sizes[rank - 2],   sizes[rank - 1],
              rank == 3 ? strides[0] : 0, strides[rank - 2], strides[rank - 1]};
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

  const OnDeviceOf<cuda> on_device(a);
  Tensor out =
      batched ? allocate(op, "output", a, out_dtype, {batch, m, n}) : allocate(op, "output", a, out_dtype, {m, n});
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
    launch_with_workspace(op, "copies of operands or parts of the product", a, cuda::gemm_workspace_bytes(arguments),
                          arguments, options.tensor_core ? cuda::tensor_core_gemm : cuda::gemm);
#endif
  } else if (options.tensor_core) {
    cpu::tensor_core_gemm(arguments, parallel);
  } else {
    cpu::gemm(arguments, parallel);
  }
  return out;
}

// ---- registration ---------------------------------------------------------------------------------------------------

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
  library.impl("gemm", TORCH_BOX(&gemm_op<cuda>));
  library.impl("tensor_core_gemm", TORCH_BOX(&tensor_core_gemm_op<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY(cuda_llm_ops, library) {
  library.def(
      "gemm(Tensor a, Tensor b, float alpha=1.0, float beta=0.0, Tensor? c=None, bool trans_a=False, "
      "bool trans_b=False) -> Tensor");
  library.def("tensor_core_gemm(Tensor a, Tensor b) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
