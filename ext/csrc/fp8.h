// The interface between the FP8 operators (fp8_gemm_ops.cpp, fp8_quantise_ops.cpp) and their kernels.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops {

enum class Fp8Type : int32_t { e4m3 = 0, e5m2 = 1 };

constexpr int32_t kFp8Block = 128;  // elements of k that share a scale, and that are summed between promotions

// Row i of a group and column j of the product:
//   out[i, j] = sum_k scale_a[i, k] a[i, k] scale_b[j, k] b[j, k] + bias[j]
// Both operands are K-major: elements of a row lie side by side, rows are *_stride bytes apart. Sums are float32. A
// kernel that sums in fewer bits adds to float32 at least every kFp8Block of k.
//
// The scale of a[i, k] is scale_a[i * scale_a_stride_m + k / kFp8Block * scale_a_stride_k], that of b[j, k] is
// scale_b[j / scale_b_columns * scale_b_stride_n + k / kFp8Block * scale_b_stride_k]; strides are 0 along what shares a
// scale. block_scales: scales vary along k.
//
// With groups, `m` rows of a follow each other, group after group, and each group has its own b. Of group g:
//   capacity == 0: rows from group_sizes[g - 1] (0 for the first) to group_sizes[g]
//   capacity > 0:  the first group_sizes[g] rows from g * capacity
// Rows of out that belong to no group are zeros: cuda::fp8_gemm() writes them, cpu::fp8_gemm() finds them zeroed. bias
// is nullptr then.
struct Fp8GemmArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  const void* bias = nullptr;  // of out_type, or nullptr
  void* out = nullptr;         // m x n, row-major and dense
  int32_t m = 0, n = 0, k = 0, groups = 1;
  int64_t a_stride = 0, b_stride = 0, b_stride_group = 0;
  int64_t scale_a_stride_m = 0, scale_a_stride_k = 0;
  int64_t scale_b_stride_n = 0, scale_b_stride_k = 0, scale_b_stride_group = 0;
  int32_t scale_b_columns = 1;
  int64_t bias_stride = 0;
  const int32_t* group_sizes = nullptr;  // in memory of the kernel's device; nullptr: one group of all rows
  int32_t capacity = 0;
  Fp8Type a_type = Fp8Type::e4m3, b_type = Fp8Type::e4m3;
  ScalarType out_type = ScalarType::bfloat16;
  bool block_scales = false;
  void* workspace = nullptr;  // on CUDA, where fp8_gemm_workspace_bytes() is not 0: so many bytes, 256-byte aligned
};

// What shares a scale: all values, a row, 128 neighbours in a row, or 128 rows by 128 columns.
enum class Fp8Scales : int32_t { tensor = 0, row = 1, row_block = 2, square_block = 3 };

enum class Fp8Source : int32_t { values = 0, rms_norm = 1, swiglu = 2 };

// numbers = y / scale, rounded to the nearest number of `to` and held within its range; scale = max |y| / the largest
// number, in float32, of the values y that share it. A scale of zero has numbers of zero. y is, in float32,
//   values    x
//   rms_norm  x / sqrt(mean of squares of the row + epsilon) * other     other: `columns` weights
//   swiglu    x / (1 + exp(-x)) * other                                  other: of x's shape
// x and other have a stride of 1 along columns. numbers and scales are dense and row-major: batch x rows x columns, and
// batch x rows (x columns / 128, rounded up), or batch x rows / 128 x columns / 128, or one number.
struct Fp8QuantiseArguments {
  const void* x = nullptr;
  const void* other = nullptr;
  void* numbers = nullptr;
  float* scales_out = nullptr;
  int32_t batch = 1, rows = 0, columns = 0;
  int64_t x_stride_batch = 0, x_stride = 0, other_stride_batch = 0, other_stride = 0;
  float epsilon = 0.0f;
  ScalarType type = ScalarType::float32;  // of x and other
  Fp8Type to = Fp8Type::e4m3;
  Fp8Scales scales = Fp8Scales::row;
  Fp8Source source = Fp8Source::values;
};

namespace cpu {
// The sizes of groups are checked: they lie within the rows, and ends do not decrease.
void fp8_gemm(const Fp8GemmArguments& arguments, const ParallelFor& parallel);
void fp8_quantise(const Fp8QuantiseArguments& arguments, const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
// A size of a group beyond the rows is taken as the nearest possible one. Where ends decrease, rows are computed more
// than once, and what they hold is not defined.
size_t fp8_gemm_workspace_bytes(const Fp8GemmArguments& arguments);
const char* fp8_gemm(const Fp8GemmArguments& arguments, void* stream);
// For tuning, as gemm_plans() and force_gemm_plan() of kernels.h; "portable" is the kernel of every card.
std::vector<std::string> fp8_gemm_plans(const Fp8GemmArguments& arguments);
void force_fp8_gemm_plan(const std::string& name);
const char* fp8_quantise(const Fp8QuantiseArguments& arguments, void* stream);
void fp8_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
