// Checks that the FP8 operators share: 8-bit types, K-major layouts, types of results.
#pragma once

#include "fp8.h"
#include "tensors.h"

namespace cuda_llm_ops {

inline constexpr int64_t kFp8Blocks(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

inline Fp8Type fp8_type(const char* op, const char* name, Dtype dtype) {
  if (dtype == Dtype::Float8_e4m3fn) return Fp8Type::e4m3;
  if (dtype == Dtype::Float8_e5m2) return Fp8Type::e5m2;
  fail("TypeError", op, name, " is ", dtype_text(dtype), "; it must be float8_e4m3fn or float8_e5m2");
}

// A (rows, k) operand, or a batch of them, whose rows are dense.
inline void check_k_major(const char* op, const char* name, const Tensor& tensor) {
  const int64_t rank = tensor.dim();
  if (tensor.size(rank - 1) > 1 && tensor.stride(rank - 1) != 1) {
    const bool transposed = rank > 1 && tensor.stride(rank - 2) == 1;
    fail("ValueError", op, name, " has shape ", shape_text(tensor), " and strides ",
         shape_text(tensor.strides().data(), rank), "; it must be K-major, with stride 1 along its last dimension",
         transposed ? " (it is MN-major, a transposed view: call .contiguous())" : "");
  }
  check_extent(op, name, tensor);
}

inline void check_out_dtype(const char* op, Dtype dtype) {
  if (dtype != Dtype::BFloat16 && dtype != Dtype::Half && dtype != Dtype::Float) {
    fail("TypeError", op, "out_dtype is ", dtype_text(dtype), "; it must be bfloat16, float16 or float32");
  }
}

inline void check_scale(const char* op, const char* name, const Tensor& scale, const Tensor& a) {
  check_defined(op, name, scale);
  if (scale.scalar_type() != Dtype::Float) {
    fail("TypeError", op, name, " is ", dtype_text(scale.scalar_type()), "; it must be float32");
  }
  check_same_device(op, name, scale, "a", a);
  check_extent(op, name, scale);
}

}  // namespace cuda_llm_ops
