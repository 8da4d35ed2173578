// The portable backward of attention: its definition, one query at a time, without blocks or vector types.
//
// Threads share out the key heads, and a thread has every query of its heads: so no two add to the same gradient, and the
// order of all sums is fixed.
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

// `Number` is what sums are kept in: float64 for float64, float32 for the others.
template <typename T, typename Number>
void one_key_head(const BackwardArguments& a, int64_t batch, int64_t kv_head) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  const Number scale = static_cast<Number>(a.scale);
  const auto rows = [&](const void* base, const HeadStrides& strides, int64_t head) {
    return static_cast<const T*>(base) + batch * strides.batch + head * strides.head;
  };
  const auto read = [&](const T* head, const HeadStrides& strides, int64_t count) {
    std::vector<Number> dense(static_cast<size_t>(count * d));
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t c = 0; c < d; ++c) dense[row * d + c] = widen(head[row * strides.seq + c]);
    }
    return dense;
  };
  const std::vector<Number> k = read(rows(a.k, a.k_stride, kv_head), a.k_stride, a.seq_kv);
  const std::vector<Number> v = read(rows(a.v, a.v_stride, kv_head), a.v_stride, a.seq_kv);
  std::vector<Number> dk(k.size()), dv(k.size()), weights(a.seq_kv), q(d), d_out(d), dq(d);
  const auto dot = [&](const Number* x, const Number* y) {
    Number sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += x[c] * y[c];
    return sum;
  };
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* const q_rows = rows(a.q, a.q_stride, head);
    const T* const d_out_rows = rows(a.d_out, a.d_out_stride, head);
    for (int64_t i = 0; i < a.seq_q; ++i) {
      for (int64_t c = 0; c < d; ++c) {
        q[c] = widen(q_rows[i * a.q_stride.seq + c]);
        d_out[c] = widen(d_out_rows[i * a.d_out_stride.seq + c]);
        dq[c] = 0;
      }
      const int64_t seen = a.causal ? std::min<int64_t>(a.seq_kv, i + 1) : a.seq_kv;
      Number largest = -INFINITY;
      for (int64_t j = 0; j < seen; ++j) {
        weights[j] = scale * dot(q.data(), &k[j * d]);
        if (!(weights[j] <= largest)) largest = weights[j];  // a NaN stays
      }
      // A row whose scores are all minus infinity has no weights, as in the forward.
      const bool none = largest == -INFINITY;
      Number total = 0;
      for (int64_t j = 0; j < seen; ++j) total += weights[j] = none ? 0 : std::exp(weights[j] - largest);
      // rowsum(d_out * out), with the output as it is before it is rounded.
      Number mean = 0;
      for (int64_t j = 0; j < seen; ++j) {
        weights[j] = none ? 0 : weights[j] / total;
        mean += weights[j] * dot(d_out.data(), &v[j * d]);
      }
      for (int64_t j = 0; j < seen; ++j) {
        const Number weight = weights[j];
        const Number d_score = weight * (dot(d_out.data(), &v[j * d]) - mean) * scale;
        for (int64_t c = 0; c < d; ++c) {
          dv[j * d + c] += weight * d_out[c];
          dk[j * d + c] += d_score * q[c];
          dq[c] += d_score * k[j * d + c];
        }
      }
      T* const to = static_cast<T*>(a.dq) + ((batch * a.heads + head) * a.seq_q + i) * d;
      for (int64_t c = 0; c < d; ++c) to[c] = narrow<T>(dq[c]);
    }
  }
  const int64_t first = (batch * a.kv_heads + kv_head) * a.seq_kv * d;
  for (int64_t e = 0; e < a.seq_kv * d; ++e) {
    static_cast<T*>(a.dk)[first + e] = narrow<T>(dk[e]);
    static_cast<T*>(a.dv)[first + e] = narrow<T>(dv[e]);
  }
}

template <typename T, typename Number>
void all_key_heads(const BackwardArguments& a, const ParallelFor& parallel) {
  parallel(0, int64_t{a.batch} * a.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one_key_head<T, Number>(a, i / a.kv_heads, i % a.kv_heads);
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
