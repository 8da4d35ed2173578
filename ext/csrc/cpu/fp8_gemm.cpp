// FP8 products on the CPU: numbers become float32, times their scales where those vary along k, and cpu::gemm
// multiplies them a block at a time. Other scales and the bias follow. Made to be read and to be right.
#include <algorithm>
#include <vector>

#include "../arithmetic.h"
#include "fp8_scalar.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

constexpr int64_t kBlockFloats = int64_t{1} << 24;  // of an operand that are widened at once

struct Rows {
  int64_t first, count;
};

Rows rows_of(const Fp8GemmArguments& g, int32_t group) {
  if (g.group_sizes == nullptr) return {0, g.m};
  if (g.capacity > 0) return {int64_t{group} * g.capacity, g.group_sizes[group]};
  const int64_t first = group == 0 ? 0 : g.group_sizes[group - 1];
  return {first, g.group_sizes[group] - first};
}

// `count` rows of an operand as float32. Of a row `scale(row, block)` multiplies block after block of k.
template <typename Scale>
void widen(const uint8_t* bytes, int64_t stride, int64_t count, int64_t k, const std::array<float, 256>& numbers,
           const Scale& scale, const ParallelFor& parallel, std::vector<float>& into) {
  into.resize(static_cast<size_t>(count * k));
  parallel(0, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = into.data() + row * k;
      const uint8_t* const from = bytes + row * stride;
      for (int64_t start = 0; start < k; start += kFp8Block) {
        const float factor = scale(row, start / kFp8Block);
        for (int64_t at = start; at < std::min<int64_t>(start + kFp8Block, k); ++at)
          to[at] = numbers[from[at]] * factor;
      }
    }
  });
}

template <typename T>
class Product {
 public:
  Product(const Fp8GemmArguments& g, const ParallelFor& parallel)
      : g_(g), parallel_(parallel), a_numbers_(fp8_numbers(g.a_type)), b_numbers_(fp8_numbers(g.b_type)) {}

  void run() {
    const int64_t step = std::clamp<int64_t>(kBlockFloats / std::max(g_.k, 1), 1, int64_t{g_.m} + g_.n);
    for (int32_t group = 0; group < g_.groups; ++group) {
      const Rows rows = rows_of(g_, group);
      for (int64_t column = 0; column < g_.n; column += step) {
        const int64_t columns = std::min(step, g_.n - column);
        if (rows.count > 0) widen_b(group, column, columns);
        for (int64_t row = 0; row < rows.count; row += step) {
          block(group, rows.first + row, std::min(step, rows.count - row), column, columns);
        }
      }
    }
  }

 private:
  float scale_b(int32_t group, int64_t column, int64_t block) const {
    return g_.scale_b[group * g_.scale_b_stride_group + column / g_.scale_b_columns * g_.scale_b_stride_n +
                      block * g_.scale_b_stride_k];
  }

  float scale_a(int64_t row, int64_t block) const {
    return g_.scale_a[row * g_.scale_a_stride_m + block * g_.scale_a_stride_k];
  }

  void widen_b(int32_t group, int64_t column, int64_t columns) {
    const uint8_t* const bytes = static_cast<const uint8_t*>(g_.b) + group * g_.b_stride_group + column * g_.b_stride;
    const auto scale = [&](int64_t j, int64_t block) {
      return g_.block_scales ? scale_b(group, column + j, block) : 1.0f;
    };
    widen(bytes, g_.b_stride, columns, g_.k, b_numbers_, scale, parallel_, b_);
  }

  void block(int32_t group, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const auto scale = [&](int64_t i, int64_t block) { return g_.block_scales ? scale_a(row + i, block) : 1.0f; };
    widen(static_cast<const uint8_t*>(g_.a) + row * g_.a_stride, g_.a_stride, rows, g_.k, a_numbers_, scale, parallel_,
          a_);
    sums_.assign(static_cast<size_t>(rows * columns), 0.0f);
    if (g_.k > 0) {
      GemmArguments product;
      product.a = a_.data();
      product.b = b_.data();
      product.out = sums_.data();
      product.m = static_cast<int32_t>(rows);
      product.n = static_cast<int32_t>(columns);
      product.k = g_.k;
      product.a_stride_m = g_.k, product.a_stride_k = 1;
      product.b_stride_k = 1, product.b_stride_n = g_.k;
      gemm(product, parallel_);
    }
    const T* const bias = static_cast<const T*>(g_.bias);
    for (int64_t i = 0; i < rows; ++i) {
      T* const out = static_cast<T*>(g_.out) + (row + i) * g_.n + column;
      const float of_row = g_.block_scales ? 1.0f : scale_a(row + i, 0);
      for (int64_t j = 0; j < columns; ++j) {
        const float factor = g_.block_scales ? 1.0f : of_row * scale_b(group, column + j, 0);
        const float added = bias == nullptr ? 0.0f : to_float(bias[(column + j) * g_.bias_stride]);
        out[j] = from_float<T>(sums_[static_cast<size_t>(i * columns + j)] * factor + added);
      }
    }
  }

  const Fp8GemmArguments& g_;
  const ParallelFor& parallel_;
  const std::array<float, 256> a_numbers_, b_numbers_;
  std::vector<float> a_, b_, sums_;
};

}  // namespace

void fp8_gemm(const Fp8GemmArguments& arguments, const ParallelFor& parallel) {
  visit_scalar(arguments.out_type, [&](auto zero) { Product<decltype(zero)>(arguments, parallel).run(); });
}

}  // namespace cuda_llm_ops::cpu
