// The FP8 product operators: schemas, argument checks and dispatch to the kernels of fp8.h.
#include "tensors.h"

#include "fp8_checks.h"

namespace cuda_llm_ops {
namespace {

// A stride that is 0 along a dimension of size 1.
int64_t step(const Tensor& tensor, int64_t dim) { return tensor.size(dim) == 1 ? 0 : tensor.stride(dim); }

std::string sizes_text(std::initializer_list<int64_t> sizes) {
  return shape_text(sizes.begin(), static_cast<int64_t>(sizes.size()));
}

bool has_sizes(const Tensor& tensor, std::initializer_list<int64_t> sizes) {
  return tensor.dim() == static_cast<int64_t>(sizes.size()) &&
         std::equal(sizes.begin(), sizes.end(), tensor.sizes().data());
}

[[noreturn]] void fail_scales(const char* op, const Tensor& a, const Tensor& b, const Tensor& scale_a,
                              const Tensor& scale_b, const std::string& allowed) {
  fail("ValueError", op, "scale_a has shape ", shape_text(scale_a), " and scale_b ", shape_text(scale_b), ", with a ",
       shape_text(a), " and b ", shape_text(b), "; allowed are ", allowed);
}

// Both types, layouts and inner sizes.
void check_operands(const char* op, const Tensor& a, const Tensor& b, Dtype out_dtype, Fp8GemmArguments& arguments) {
  arguments.a_type = fp8_type(op, "a", a.scalar_type());
  arguments.b_type = fp8_type(op, "b", b.scalar_type());
  if (arguments.b_type != Fp8Type::e4m3) {
    fail("TypeError", op, "b is ", dtype_text(b.scalar_type()), "; it must be float8_e4m3fn (a may be float8_e5m2)");
  }
  check_same_device(op, "b", b, "a", a);
  check_k_major(op, "a", a);
  check_k_major(op, "b", b);
  check_out_dtype(op, out_dtype);
  const int64_t k = a.size(a.dim() - 1);
  if (b.size(b.dim() - 1) != k) {
    fail("ValueError", op, "a ", shape_text(a), " has inner size ", k, " but b ", shape_text(b), " has ",
         b.size(b.dim() - 1), "; b is stored (n, k), as a linear layer's weight is, and they must be equal");
  }
  arguments.k = static_cast<int32_t>(k);
  arguments.n = static_cast<int32_t>(b.size(b.dim() - 2));
  arguments.out_type = kernel_type(out_dtype);
}

template <bool cuda>
void launch(const char* op, const Tensor& like, Fp8GemmArguments& arguments) {
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_with_workspace(op, "aligned copies of operands", like, cuda::fp8_gemm_workspace_bytes(arguments), arguments,
                          cuda::fp8_gemm);
#endif
  } else {
    cpu::fp8_gemm(arguments, parallel);
  }
}

template <bool cuda>
Tensor fp8_gemm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, std::optional<Tensor> bias, Dtype out_dtype,
                bool fast_sums) {
  constexpr const char* op = "fp8_gemm";
  check_defined(op, "a", a);
  check_defined(op, "b", b);
  check_rank(op, "a", a, 2, "(m, k)");
  check_rank(op, "b", b, 2, "(n, k)");
  Fp8GemmArguments arguments;
  check_operands(op, a, b, out_dtype, arguments);
  check_scale(op, "scale_a", scale_a, a);
  check_scale(op, "scale_b", scale_b, a);
  const int64_t m = a.size(0), n = b.size(0), blocks = kFp8Blocks(a.size(1));
  arguments.m = static_cast<int32_t>(m);
  const bool a_block = has_sizes(scale_a, {m, blocks}), b_block = has_sizes(scale_b, {kFp8Blocks(n), blocks});
  const bool a_row = scale_a.dim() == 0 || has_sizes(scale_a, {m});
  const bool b_row = scale_b.dim() == 0 || has_sizes(scale_b, {n});
  if (!(a_block && b_block) && !(a_row && b_row)) {
    fail_scales(op, a, b, scale_a, scale_b,
                "() or " + sizes_text({m}) + " with () or " + sizes_text({n}) + ", or " + sizes_text({m, blocks}) +
                    " with " + sizes_text({kFp8Blocks(n), blocks}));
  }
  arguments.block_scales = a_block && b_block;
  if (scale_a.dim() > 0) arguments.scale_a_stride_m = step(scale_a, 0);
  if (scale_b.dim() > 0) arguments.scale_b_stride_n = step(scale_b, 0);
  if (arguments.block_scales) {
    arguments.scale_b_columns = kFp8Block;
    arguments.scale_a_stride_k = step(scale_a, 1);
    arguments.scale_b_stride_k = step(scale_b, 1);
  }
  if (bias.has_value()) {
    if (!has_sizes(*bias, {n})) {
      fail("ValueError", op, "bias has shape ", shape_text(*bias), "; it must have ", sizes_text({n}));
    }
    if (bias->scalar_type() != out_dtype) {
      fail("TypeError", op, "bias is ", dtype_text(bias->scalar_type()), "; it must be ", dtype_text(out_dtype),
           ", which is out_dtype");
    }
    check_same_device(op, "bias", *bias, "a", a);
    check_extent(op, "bias", *bias);
    arguments.bias = bias->const_data_ptr();
    arguments.bias_stride = bias->stride(0);
  }
  check_output_elements(op, {m, n});
  const OnDeviceOf<cuda> on_device(a);
  Tensor out = allocate(op, "output", a, out_dtype, {m, n});
  if (out.numel() == 0) return out;
  arguments.a = a.const_data_ptr();
  arguments.b = b.const_data_ptr();
  arguments.scale_a = static_cast<const float*>(scale_a.const_data_ptr());
  arguments.scale_b = static_cast<const float*>(scale_b.const_data_ptr());
  arguments.out = out.mutable_data_ptr();
  arguments.a_stride = a.stride(0);
  arguments.b_stride = b.stride(0);
  launch<cuda>(op, a, arguments);
  return out;
}

void check_group_sizes(const char* op, const Tensor& groups, int64_t rows, int64_t capacity) {
  const int32_t* const sizes = static_cast<const int32_t*>(groups.const_data_ptr());
  int64_t before = 0;
  for (int64_t g = 0; g < groups.size(0); ++g) {
    const int64_t most = capacity > 0 ? capacity : rows;
    if (sizes[g] < before || sizes[g] > most) {
      fail("ValueError", op, "groups[", g, "] is ", int64_t{sizes[g]}, "; it must be between ", before, " and ", most,
           capacity > 0 ? ", the rows that there is room for" : ", as ends of groups of rows do not decrease");
    }
    if (capacity == 0) before = sizes[g];
  }
}

template <bool cuda>
Tensor fp8_grouped_gemm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor groups, Dtype out_dtype,
                        bool fast_sums) {
  constexpr const char* op = "fp8_grouped_gemm";
  check_defined(op, "a", a);
  check_defined(op, "b", b);
  check_defined(op, "groups", groups);
  const bool masked = a.dim() == 3;
  if (!masked) check_rank(op, "a", a, 2, "(rows, k), or 3: (groups, rows, k)");
  check_rank(op, "b", b, 3, "(groups, n, k)");
  Fp8GemmArguments arguments;
  check_operands(op, a, b, out_dtype, arguments);
  check_scale(op, "scale_a", scale_a, a);
  check_scale(op, "scale_b", scale_b, a);
  const int64_t count = b.size(0), n = b.size(1), blocks = kFp8Blocks(b.size(2));
  if (masked && a.size(0) != count) {
    fail("ValueError", op, "a ", shape_text(a), " has ", a.size(0), " groups but b ", shape_text(b), " has ", count,
         "; they must be equal");
  }
  if (!has_sizes(groups, {count})) {
    fail("ValueError", op, "groups has shape ", shape_text(groups), "; it must have ", sizes_text({count}),
         ", one size for each group of b");
  }
  if (groups.scalar_type() != Dtype::Int) {
    fail("TypeError", op, "groups is ", dtype_text(groups.scalar_type()), "; it must be int32");
  }
  check_same_device(op, "groups", groups, "a", a);
  const int64_t capacity = masked ? a.size(1) : 0, rows = masked ? count * capacity : a.size(0);

  const bool a_block = masked ? has_sizes(scale_a, {count, capacity, blocks}) : has_sizes(scale_a, {rows, blocks});
  const bool a_row =
      scale_a.dim() == 0 || (masked ? has_sizes(scale_a, {count, capacity}) : has_sizes(scale_a, {rows}));
  const bool b_block = has_sizes(scale_b, {count, kFp8Blocks(n), blocks});
  const bool b_row = scale_b.dim() == 0 || has_sizes(scale_b, {count}) || has_sizes(scale_b, {count, n});
  if (!(a_block && b_block) && !(a_row && b_row)) {
    const std::string lead = masked ? sizes_text({count, capacity}) : sizes_text({rows});
    const std::string whole = masked ? sizes_text({count, capacity, blocks}) : sizes_text({rows, blocks});
    fail_scales(op, a, b, scale_a, scale_b,
                "() or " + lead + " with (), " + sizes_text({count}) + " or " + sizes_text({count, n}) + ", or " +
                    whole + " with " + sizes_text({count, kFp8Blocks(n), blocks}));
  }
  arguments.block_scales = a_block && b_block;
  const OnDeviceOf<cuda> on_device(a);
  // Rows of all groups are numbered through, in a and in its scales.
  const auto numbered = [&](const char* name, Tensor& tensor) {
    const bool through =
        tensor.size(0) == 1 || tensor.size(1) == 0 || tensor.stride(0) == tensor.size(1) * tensor.stride(1);
    if (!through) tensor = dense_copy(op, name, tensor);
  };
  const int64_t row_dim = masked ? 1 : 0;
  if (masked) numbered("a", a);
  if (masked && scale_a.dim() > 0) numbered("scale_a", scale_a);
  if (scale_a.dim() > 0) arguments.scale_a_stride_m = scale_a.stride(row_dim);
  if (scale_b.dim() > 0) arguments.scale_b_stride_group = step(scale_b, 0);
  if (scale_b.dim() > 1) arguments.scale_b_stride_n = step(scale_b, 1);
  if (arguments.block_scales) {
    arguments.scale_b_columns = kFp8Block;
    arguments.scale_a_stride_k = step(scale_a, row_dim + 1);
    arguments.scale_b_stride_k = step(scale_b, 2);
  }
  masked ? check_output_elements(op, {count, capacity, n}) : check_output_elements(op, {rows, n});
  Tensor out = masked ? allocate(op, "output", a, out_dtype, {count, capacity, n})
                      : allocate(op, "output", a, out_dtype, {rows, n});
  if (out.numel() == 0) return out;
  if constexpr (!cuda) zero(op, out);
  if (groups.stride(0) != 1) groups = dense_copy(op, "groups", groups);
  if constexpr (!cuda) check_group_sizes(op, groups, rows, capacity);
  arguments.a = a.const_data_ptr();
  arguments.b = b.const_data_ptr();
  arguments.scale_a = static_cast<const float*>(scale_a.const_data_ptr());
  arguments.scale_b = static_cast<const float*>(scale_b.const_data_ptr());
  arguments.out = out.mutable_data_ptr();
  arguments.m = static_cast<int32_t>(rows);
  arguments.groups = static_cast<int32_t>(count);
  arguments.a_stride = a.stride(row_dim);
  arguments.b_stride = b.stride(1);
  arguments.b_stride_group = b.stride(0);
  arguments.group_sizes = static_cast<const int32_t*>(groups.const_data_ptr());
  arguments.capacity = static_cast<int32_t>(capacity);
  launch<cuda>(op, a, arguments);
  return out;
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("fp8_gemm", TORCH_BOX(&fp8_gemm<cuda>));
  library.impl("fp8_grouped_gemm", TORCH_BOX(&fp8_grouped_gemm<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "fp8_gemm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, *, Tensor? bias=None, ScalarType out_dtype, "
      "bool fast_sums=False) -> Tensor");
  library.def(
      "fp8_grouped_gemm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor groups, *, ScalarType out_dtype, "
      "bool fast_sums=False) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
