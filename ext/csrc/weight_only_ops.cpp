// The weight-only product operator: schema, argument checks and dispatch to the kernels of weight_only.h.
#include "tensors.h"

#include "arithmetic.h"
#include "weight_only.h"

namespace cuda_llm_ops {
namespace {

constexpr const char* op = "weight_only_gemm";

// Dense, and on a GPU at an address that 16-byte copies take.
Tensor readable(const char* name, const Tensor& tensor) {
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  return tensor.is_contiguous() && (tensor.is_cpu() || aligned) ? tensor : dense_copy(op, name, tensor);
}

// x as it is where rows are dense and, on a GPU, begin at multiples of 16 bytes; else a copy.
Tensor readable_rows(const Tensor& x) {
  const bool dense = x.size(1) <= 1 || x.stride(1) == 1;
  const bool aligned =
      x.is_cpu() || (reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && x.stride(0) % 8 == 0);
  return dense && aligned ? x : dense_copy(op, "x", x);
}

int32_t bits_of(const Tensor& packed) {
  for (const int32_t bits : {4, 8}) {
    if (packed.size(2) == weight_tile_bytes(bits)) return bits;
  }
  fail("ValueError", op, "packed has shape ", shape_text(packed),
       "; its last size must be 512 (4 bits) or 1024 (8 bits), as pack_int4() and pack_int8() make it");
}

void check_numbers(const char* name, const Tensor& tensor, Dtype dtype, const Tensor& x) {
  if (tensor.scalar_type() != dtype) {
    fail("TypeError", op, name, " is ", dtype_text(tensor.scalar_type()), "; it must be ", dtype_text(dtype));
  }
  check_same_device(op, name, tensor, "x", x);
}

template <bool cuda>
Tensor weight_only_gemm(Tensor x, Tensor packed, Tensor scales, std::optional<Tensor> zeros) {
  check_defined(op, "x", x);
  check_defined(op, "packed", packed);
  check_defined(op, "scales", scales);
  check_rank(op, "x", x, 2, "(m, k)");
  check_rank(op, "packed", packed, 3, "(n / 16, k / 64, bytes of a tile)");
  check_dtype(op, "x", x, false);
  check_numbers("packed", packed, Dtype::Byte, x);
  check_same_dtype(op, "scales", scales, "x", x);
  check_same_device(op, "scales", scales, "x", x);
  check_extent(op, "x", x);
  check_extent(op, "scales", scales);

  WeightOnlyArguments arguments;
  arguments.bits = bits_of(packed);
  const bool four = arguments.bits == 4;
  check_rank(op, "scales", scales, four ? 2 : 1, four ? "(k / group, n) of 4 bits" : "(n,) of 8 bits");
  const int64_t k = x.size(1), n = scales.size(four ? 1 : 0), groups = four ? scales.size(0) : 1;
  if (k != packed.size(1) * kWeightDepth) {
    fail("ValueError", op, "x ", shape_text(x), " has inner size ", k, " but packed ", shape_text(packed), " has ",
         packed.size(1) * kWeightDepth, "; they must be equal");
  }
  if (ceil_div(n, int64_t{kWeightColumns}) != packed.size(0)) {
    fail("ValueError", op, "scales ", shape_text(scales), " has ", n, " columns but packed ", shape_text(packed),
         " has tiles of 16 for ", packed.size(0) * kWeightColumns, "; it must have one for every 16, rounded up");
  }
  if (four && groups * 64 != k && groups * 128 != k) {
    fail("ValueError", op, "scales has shape ", shape_text(scales), " with k ", k,
         "; its first size must be k / 64 or k / 128, for groups of 64 or 128");
  }
  if (zeros.has_value()) {
    if (!four) fail("ValueError", op, "zeros is given with 8-bit weights; it must be None, as they are symmetric");
    check_numbers("zeros", *zeros, Dtype::Byte, x);
    if (zeros->dim() != 2 || zeros->size(0) != groups || zeros->size(1) != n) {
      fail("ValueError", op, "zeros has shape ", shape_text(*zeros), "; it must have that of scales, ",
           shape_text(scales));
    }
  }
  check_output_elements(op, {x.size(0), n});
  const OnDeviceOf<cuda> on_device(x);
  Tensor out = allocate(op, "output", x, x.scalar_type(), {x.size(0), n});
  if (out.numel() == 0) return out;
  if (k == 0) return zero(op, out);
  const Tensor rows = readable_rows(x), weights = readable("packed", packed), dense = readable("scales", scales);
  std::optional<Tensor> dense_zeros;
  if (zeros.has_value()) dense_zeros = readable("zeros", *zeros);
  arguments.x = rows.const_data_ptr();
  arguments.packed = weights.const_data_ptr();
  arguments.scales = dense.const_data_ptr();
  arguments.zeros = dense_zeros.has_value() ? dense_zeros->const_data_ptr() : nullptr;
  arguments.out = out.mutable_data_ptr();
  arguments.m = static_cast<int32_t>(x.size(0));
  arguments.n = static_cast<int32_t>(n);
  arguments.k = static_cast<int32_t>(k);
  arguments.group = four ? static_cast<int32_t>(k / groups) : 0;
  arguments.x_stride = rows.stride(0);
  arguments.type = kernel_type(x.scalar_type());
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_with_workspace(op, "partial sums", x, cuda::weight_only_workspace_bytes(arguments), arguments,
                          cuda::weight_only_gemm);
#endif
  } else {
    cpu::weight_only_gemm(arguments, parallel);
  }
  return out;
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def("weight_only_gemm(Tensor x, Tensor packed, Tensor scales, Tensor? zeros=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) {
  library.impl("weight_only_gemm", TORCH_BOX(&cuda_llm_ops::weight_only_gemm<false>));
}

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) {
  library.impl("weight_only_gemm", TORCH_BOX(&cuda_llm_ops::weight_only_gemm<true>));
}
#endif
