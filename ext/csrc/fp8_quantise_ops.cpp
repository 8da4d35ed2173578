// The operators that make FP8 numbers and their scales: schemas, argument checks and dispatch to the kernels of fp8.h.
#include "tensors.h"

#include <tuple>

#include "fp8_checks.h"

namespace cuda_llm_ops {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

void check_values(const char* op, const char* name, const Tensor& x) {
  check_defined(op, name, x);
  if (x.dim() != 2 && x.dim() != 3) {
    fail("ValueError", op, name, " has ", x.dim(), " dimensions ", shape_text(x),
         "; it must have 2: (rows, columns), or 3: (batch, rows, columns)");
  }
  check_dtype(op, name, x, true);
  check_extent(op, name, x);
}

Fp8Scales scales_kind(const char* op, int64_t scales, bool fused) {
  if (scales < (fused ? 1 : 0) || scales > (fused ? 2 : 3)) {
    fail("ValueError", op, "scales is ", scales, "; it must be ", fused ? "" : "0 (tensor), ", "1 (row)",
         fused ? " or 2 (1x128)" : ", 2 (1x128) or 3 (128x128)");
  }
  return static_cast<Fp8Scales>(scales);
}

Tensor scales_like(const char* op, const Tensor& x, Fp8Scales kind) {
  const int64_t rank = x.dim(), rows = x.size(rank - 2), columns = x.size(rank - 1);
  const auto made = [&](std::initializer_list<int64_t> of_batch) {
    int64_t sizes[3] = {x.size(0)};
    std::copy(of_batch.begin(), of_batch.end(), sizes + (rank - 2));
    return allocate(op, "scales", x, Dtype::Float, {sizes, static_cast<size_t>(rank - 2) + of_batch.size()});
  };
  switch (kind) {
    case Fp8Scales::tensor: return allocate(op, "scale", x, Dtype::Float, {});
    case Fp8Scales::row: return made({rows});
    case Fp8Scales::row_block: return made({rows, kFp8Blocks(columns)});
    default: return made({kFp8Blocks(rows), kFp8Blocks(columns)});
  }
}

template <bool cuda>
Pair quantise(const char* op, const char* name, Tensor x, std::optional<Tensor> other, const char* other_name,
              int64_t scales, Dtype dtype, Fp8QuantiseArguments arguments) {
  check_values(op, name, x);
  arguments.to = fp8_type(op, "dtype", dtype);
  arguments.scales = scales_kind(op, scales, arguments.source != Fp8Source::values);
  const int64_t rank = x.dim(), columns = x.size(rank - 1);
  if (other.has_value()) {
    const bool weights = arguments.source == Fp8Source::rms_norm;
    check_same_dtype(op, other_name, *other, name, x);
    check_same_device(op, other_name, *other, name, x);
    check_extent(op, other_name, *other);
    const bool fits =
        weights ? other->dim() == 1 && other->size(0) == columns
                : other->dim() == rank && std::equal(x.sizes().begin(), x.sizes().end(), other->sizes().begin());
    if (!fits) {
      fail("ValueError", op, other_name, " has shape ", shape_text(*other), " but ", name, " has ", shape_text(x),
           "; it must ", weights ? "be one weight for each column" : "have the same shape");
    }
  }
  const OnDeviceOf<cuda> on_device(x);
  Tensor numbers = rank == 3 ? allocate(op, "numbers", x, dtype, {x.size(0), x.size(1), columns})
                             : allocate(op, "numbers", x, dtype, {x.size(0), columns});
  Tensor scales_out = scales_like(op, x, arguments.scales);
  if (x.numel() == 0) return {numbers, zero(op, scales_out)};
  const auto dense_rows = [&](const char* which, Tensor tensor) {
    return columns > 1 && tensor.stride(tensor.dim() - 1) != 1 ? dense_copy(op, which, tensor) : tensor;
  };
  x = dense_rows(name, x);
  arguments.batch = rank == 3 ? static_cast<int32_t>(x.size(0)) : 1;
  arguments.rows = static_cast<int32_t>(x.size(rank - 2));
  arguments.columns = static_cast<int32_t>(columns);
  arguments.x = x.const_data_ptr();
  arguments.x_stride = x.stride(rank - 2);
  arguments.x_stride_batch = rank == 3 ? x.stride(0) : 0;
  if (other.has_value()) {
    other = dense_rows(other_name, *other);
    arguments.other = other->const_data_ptr();
    if (other->dim() > 1) arguments.other_stride = other->stride(rank - 2);
    if (other->dim() == 3) arguments.other_stride_batch = other->stride(0);
  }
  arguments.type = kernel_type(x.scalar_type());
  arguments.numbers = numbers.mutable_data_ptr();
  arguments.scales_out = static_cast<float*>(scales_out.mutable_data_ptr());
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    check_launch(op, cuda::fp8_quantise(arguments, current_stream(x)));
#endif
  } else {
    cpu::fp8_quantise(arguments, parallel);
  }
  return {numbers, scales_out};
}

template <bool cuda>
Pair quantize_fp8(Tensor x, int64_t scales, Dtype dtype) {
  return quantise<cuda>("quantize_fp8", "x", x, std::nullopt, "", scales, dtype, {});
}

template <bool cuda>
Pair rms_norm_fp8(Tensor x, Tensor weight, double epsilon, int64_t scales, Dtype dtype) {
  constexpr const char* op = "rms_norm_fp8";
  check_defined(op, "weight", weight);
  if (!(epsilon >= 0.0)) fail("ValueError", op, "epsilon is ", epsilon, "; it must be at least 0");
  Fp8QuantiseArguments arguments;
  arguments.source = Fp8Source::rms_norm;
  arguments.epsilon = to_float(op, "epsilon", epsilon);
  return quantise<cuda>(op, "x", x, weight, "weight", scales, dtype, arguments);
}

template <bool cuda>
Pair swiglu_fp8(Tensor gate, Tensor up, int64_t scales, Dtype dtype) {
  check_defined("swiglu_fp8", "up", up);
  Fp8QuantiseArguments arguments;
  arguments.source = Fp8Source::swiglu;
  return quantise<cuda>("swiglu_fp8", "gate", gate, up, "up", scales, dtype, arguments);
}

template <bool cuda>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("quantize_fp8", TORCH_BOX(&quantize_fp8<cuda>));
  library.impl("rms_norm_fp8", TORCH_BOX(&rms_norm_fp8<cuda>));
  library.impl("swiglu_fp8", TORCH_BOX(&swiglu_fp8<cuda>));
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def("quantize_fp8(Tensor x, int scales, ScalarType dtype) -> (Tensor, Tensor)");
  library.def("rms_norm_fp8(Tensor x, Tensor weight, float epsilon, int scales, ScalarType dtype) -> (Tensor, Tensor)");
  library.def("swiglu_fp8(Tensor gate, Tensor up, int scales, ScalarType dtype) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) { cuda_llm_ops::implement<false>(library); }

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) { cuda_llm_ops::implement<true>(library); }
#endif
