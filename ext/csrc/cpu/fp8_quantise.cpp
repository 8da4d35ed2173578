// Quantisers to FP8 on the CPU, alone and behind an RMSNorm or a SwiGLU: a scale brings the largest value that shares
// it to the largest number of the type.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../arithmetic.h"
#include "fp8_scalar.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

// The larger magnitude; NaN, which compares with nothing, stays.
float larger(float top, float value) {
  const float size = std::fabs(value);
  return size > top || std::isnan(size) ? size : top;
}

template <typename T>
void row_values(const Fp8QuantiseArguments& q, int64_t batch, int64_t row, float* into) {
  const T* const x = static_cast<const T*>(q.x) + batch * q.x_stride_batch + row * q.x_stride;
  const T* const other = static_cast<const T*>(q.other) + batch * q.other_stride_batch + row * q.other_stride;
  switch (q.source) {
    case Fp8Source::values:
      for (int64_t j = 0; j < q.columns; ++j) into[j] = to_float(x[j]);
      return;
    case Fp8Source::rms_norm: {
      double squares = 0.0;
      for (int64_t j = 0; j < q.columns; ++j) squares += static_cast<double>(to_float(x[j])) * to_float(x[j]);
      const float factor = static_cast<float>(1.0 / std::sqrt(squares / q.columns + q.epsilon));
      for (int64_t j = 0; j < q.columns; ++j) into[j] = to_float(x[j]) * factor * to_float(other[j]);
      return;
    }
    case Fp8Source::swiglu:
      for (int64_t j = 0; j < q.columns; ++j) {
        const float gate = to_float(x[j]);
        into[j] = gate / (1.0f + std::exp(-gate)) * to_float(other[j]);
      }
  }
}

float scale_of(float top, Fp8Type type) { return top / fp8_format(type).largest; }

void write(const float* values, int64_t count, float scale, Fp8Type type, uint8_t* numbers) {
  for (int64_t j = 0; j < count; ++j) numbers[j] = scale == 0.0f ? 0 : to_fp8(values[j] / scale, type);
}

// Rows `first` to `end` of a batch, of which `block` columns and all rows share a scale: scales[0], scales[1], ...
template <typename T>
void together(const Fp8QuantiseArguments& q, int64_t batch, int64_t first, int64_t end, int64_t block, float* scales) {
  const int64_t columns = q.columns, blocks = ceil_div(columns, block);
  std::vector<float> values(static_cast<size_t>((end - first) * columns)), tops(static_cast<size_t>(blocks));
  for (int64_t row = first; row < end; ++row) {
    float* const of_row = values.data() + (row - first) * columns;
    row_values<T>(q, batch, row, of_row);
    for (int64_t j = 0; j < columns; ++j) {
      float& top = tops[static_cast<size_t>(j / block)];
      top = larger(top, of_row[j]);
    }
  }
  for (int64_t b = 0; b < blocks; ++b) {
    scales[b] = scale_of(tops[static_cast<size_t>(b)], q.to);
    for (int64_t row = first; row < end; ++row) {
      write(values.data() + (row - first) * columns + b * block, std::min(block, columns - b * block), scales[b], q.to,
            static_cast<uint8_t*>(q.numbers) + (batch * q.rows + row) * columns + b * block);
    }
  }
}

template <typename T>
void one_scale(const Fp8QuantiseArguments& q, const ParallelFor& parallel) {
  const int64_t rows = int64_t{q.batch} * q.rows;
  std::vector<float> tops(static_cast<size_t>(rows));
  const auto each = [&](const auto& visit) {
    parallel(0, rows, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> values(static_cast<size_t>(q.columns));
      for (int64_t row = begin; row < end; ++row) {
        row_values<T>(q, row / q.rows, row % q.rows, values.data());
        visit(row, values.data());
      }
    });
  };
  each([&](int64_t row, const float* values) {
    float top = 0.0f;
    for (int64_t j = 0; j < q.columns; ++j) top = larger(top, values[j]);
    tops[static_cast<size_t>(row)] = top;
  });
  float top = 0.0f;
  for (const float one : tops) top = larger(top, one);
  const float scale = *q.scales_out = scale_of(top, q.to);
  each([&](int64_t row, const float* values) {
    write(values, q.columns, scale, q.to, static_cast<uint8_t*>(q.numbers) + row * q.columns);
  });
}

}  // namespace

void fp8_quantise(const Fp8QuantiseArguments& arguments, const ParallelFor& parallel) {
  visit_scalar(arguments.type, [&](auto zero) {
    using T = decltype(zero);
    const Fp8QuantiseArguments& q = arguments;
    if (q.scales == Fp8Scales::tensor) return one_scale<T>(q, parallel);
    const int64_t height = q.scales == Fp8Scales::square_block ? kFp8Block : 1;
    const int64_t block = q.scales == Fp8Scales::row ? q.columns : kFp8Block;
    const int64_t strips = ceil_div(int64_t{q.rows}, height), blocks = ceil_div(int64_t{q.columns}, block);
    parallel(0, q.batch * strips, 1, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int64_t first = strip % strips * height;
        together<T>(q, strip / strips, first, std::min<int64_t>(first + height, q.rows), block,
                    q.scales_out + strip * blocks);
      }
    });
  });
}

}  // namespace cuda_llm_ops::cpu
