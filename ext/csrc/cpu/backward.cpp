// The portable backward of attention: its definition, one query at a time, without blocks or vector types.
//
// Threads share out the key heads of all sequences, and a thread has every query of its heads: so no two add to the same
// gradient, and the order of all sums is fixed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "../backward.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(Float16 value) { return to_float(value); }
inline float widen(BFloat16 value) { return to_float(value); }

template <typename T, typename Number>
T narrow(Number value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return from_float<T>(value);
  }
}

// One sequence: its rows, and the keys that its queries see.
struct Sequence {
  int64_t batch, first_q, first_kv, seq_q, seq_kv, diagonal;

  Sequence(const BackwardArguments& a, int64_t number) : batch(number), first_q(0), first_kv(0) {
    seq_q = a.seq_q, seq_kv = a.seq_kv;
    if (const int32_t *of_q = a.options.cu_seqlens_q, *of_kv = a.options.cu_seqlens_kv; of_q != nullptr) {
      batch = 0, first_q = of_q[number], first_kv = of_kv[number];
      seq_q = of_q[number + 1] - first_q, seq_kv = of_kv[number + 1] - first_kv;
    }
    diagonal = a.options.bottom_right ? seq_kv - seq_q : 0;
  }
  template <typename T>
  T* rows(T* base, const HeadStrides& strides, int64_t head, int64_t first) const {
    return base + batch * strides.batch + head * strides.head + first * strides.seq;
  }
};

// `Number` is what sums over rows are kept in: float64 for float64, float32 for the others.
template <typename T, typename Number>
void one_key_head(const BackwardArguments& a, const Sequence& own, int64_t kv_head) {
  const int64_t d = a.head_dim, dv_columns = a.value_dim, group = a.heads / a.kv_heads;
  const Number scale = static_cast<Number>(a.scale);
  const auto queries = [&](const void* base, const HeadStrides& strides, int64_t head) {
    return own.rows(static_cast<const T*>(base), strides, head, own.first_q);
  };
  const auto read = [&](const void* base, const HeadStrides& strides, int64_t columns) {
    const T* const head = own.rows(static_cast<const T*>(base), strides, kv_head, own.first_kv);
    std::vector<Number> dense(static_cast<size_t>(own.seq_kv * columns));
    for (int64_t row = 0; row < own.seq_kv; ++row) {
      for (int64_t c = 0; c < columns; ++c) dense[row * columns + c] = widen(head[row * strides.seq + c]);
    }
    return dense;
  };
  const std::vector<Number> k = read(a.k, a.k_stride, d), v = read(a.v, a.v_stride, dv_columns);
  std::vector<Number> dk(k.size()), dv(v.size()), weights(own.seq_kv), q(d), d_out(dv_columns), dq(d);
  // In float64, since one long sum in float32 errs several times as much as a library's, which has many short ones.
  const auto dot = [](const std::vector<Number>& x, const Number* y) {
    double sum = 0;
    for (size_t c = 0; c < x.size(); ++c) sum += static_cast<double>(x[c]) * y[c];
    return static_cast<Number>(sum);
  };
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* const q_rows = queries(a.q, a.q_stride, head);
    const T* const d_out_rows = queries(a.d_out, a.d_out_stride, head);
    const bool packed = a.options.cu_seqlens_q != nullptr;
    const int64_t first_row =
        packed ? head * a.options.total_q + own.first_q : (own.batch * a.heads + head) * own.seq_q;
    for (int64_t i = 0; i < own.seq_q; ++i) {
      for (int64_t c = 0; c < d; ++c) {
        q[c] = widen(q_rows[i * a.q_stride.seq + c]);
        dq[c] = 0;
      }
      for (int64_t c = 0; c < dv_columns; ++c) d_out[c] = widen(d_out_rows[i * a.d_out_stride.seq + c]);
      const int64_t begin = std::max<int64_t>(0, i + own.diagonal - a.options.left);
      const int64_t end = std::min<int64_t>(own.seq_kv, i + own.diagonal + a.options.right + 1);
      Number largest = -INFINITY;
      for (int64_t j = begin; j < end; ++j) {
        weights[j] = scale * dot(q, &k[j * d]);
        if (!(weights[j] <= largest)) largest = weights[j];  // a NaN stays
      }
      // A row whose scores are all minus infinity has no weights, as in the forward.
      const bool none = largest == -INFINITY;
      Number total = 0;
      for (int64_t j = begin; j < end; ++j) total += weights[j] = none ? 0 : std::exp(weights[j] - largest);
      // rowsum(d_out * out), with the output as it is before it is rounded; less the logarithm's gradient.
      Number mean = a.d_lse == nullptr || none ? 0 : -static_cast<Number>(a.d_lse[first_row + i]);
      for (int64_t j = begin; j < end; ++j) {
        weights[j] = none ? 0 : weights[j] / total;
        mean += weights[j] * dot(d_out, &v[j * dv_columns]);
      }
      for (int64_t j = begin; j < end; ++j) {
        const Number weight = weights[j];
        const Number d_score = weight * (dot(d_out, &v[j * dv_columns]) - mean) * scale;
        for (int64_t c = 0; c < dv_columns; ++c) dv[j * dv_columns + c] += weight * d_out[c];
        for (int64_t c = 0; c < d; ++c) {
          dk[j * d + c] += d_score * q[c];
          dq[c] += d_score * k[j * d + c];
        }
      }
      T* const to = own.rows(static_cast<T*>(a.dq), a.dq_stride, head, own.first_q + i);
      for (int64_t c = 0; c < d; ++c) to[c] = narrow<T>(dq[c]);
    }
  }
  const auto write = [&](void* base, const HeadStrides& strides, const std::vector<Number>& sums, int64_t columns) {
    for (int64_t row = 0; row < own.seq_kv; ++row) {
      T* const to = own.rows(static_cast<T*>(base), strides, kv_head, own.first_kv + row);
      for (int64_t c = 0; c < columns; ++c) to[c] = narrow<T>(sums[row * columns + c]);
    }
  };
  write(a.dk, a.dk_stride, dk, d);
  write(a.dv, a.dv_stride, dv, dv_columns);
}

template <typename T, typename Number>
void all_key_heads(const BackwardArguments& a, const ParallelFor& parallel) {
  parallel(0, int64_t{a.batch} * a.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one_key_head<T, Number>(a, Sequence(a, i / a.kv_heads), i % a.kv_heads);
  });
}

}  // namespace

void flash_attention_backward(const BackwardArguments& arguments, const ParallelFor& parallel) {
  switch (arguments.type) {
    case GradientType::float16: return all_key_heads<Float16, float>(arguments, parallel);
    case GradientType::bfloat16: return all_key_heads<BFloat16, float>(arguments, parallel);
    case GradientType::float32: return all_key_heads<float, float>(arguments, parallel);
    case GradientType::float64: return all_key_heads<double, double>(arguments, parallel);
  }
}

}  // namespace cuda_llm_ops::cpu
