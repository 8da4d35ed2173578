// flash_decode on the CPU: one task a sequence and query head, two passes over the keys. Made to be read and to be
// right; a CPU that serves tokens would want more of it.
#include "../decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

// The offset of a key in its cache, less that of its head.
int64_t key_offset(const DecodeArguments& a, const CacheStrides& stride, int64_t batch, int64_t key) {
  const int64_t index = key / a.page_size, slot = key % a.page_size;
  const int64_t page =
      a.block_table == nullptr ? batch : a.block_table[batch * a.table_stride_batch + index * a.table_stride_page];
  return page * stride.page + slot * stride.slot;
}

template <typename T>
void decode_row(const DecodeArguments& a, int64_t batch, int64_t head, int64_t query, std::vector<float>& scores,
                std::vector<float>& row) {
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  const T* const q =
      static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head + query * a.q_stride.seq;
  const T* const k = static_cast<const T*>(a.k) + kv_head * a.k_stride.head;
  const T* const v = static_cast<const T*>(a.v) + kv_head * a.v_stride.head;
  T* const out = static_cast<T*>(a.out) + ((batch * a.heads + head) * a.seq_q + query) * a.head_dim;
  const int64_t seen = std::max<int64_t>(0, int64_t{a.cache_lens[batch * a.lens_stride]} - (a.seq_q - 1 - query));

  // A maximum that drops NaN: the NaN score itself makes the sum NaN below.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  scores.resize(static_cast<size_t>(seen));
  float maximum = -kInfinity;
  for (int64_t j = 0; j < seen; ++j) {
    const T* const key = k + key_offset(a, a.k_stride, batch, j);
    float score = 0.0f;
    for (int d = 0; d < a.head_dim; ++d) score += to_float(q[d]) * to_float(key[d]);
    score *= a.scale;
    scores[static_cast<size_t>(j)] = score;
    maximum = score > maximum ? score : maximum;
  }
  const float base = maximum == -kInfinity ? 0.0f : maximum;
  row.assign(static_cast<size_t>(a.head_dim), 0.0f);
  float sum = 0.0f;
  for (int64_t j = 0; j < seen; ++j) {
    const float weight = std::exp(scores[static_cast<size_t>(j)] - base);
    const T* const value = v + key_offset(a, a.v_stride, batch, j);
    sum += weight;
    for (int d = 0; d < a.head_dim; ++d) row[static_cast<size_t>(d)] += weight * to_float(value[d]);
  }
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int d = 0; d < a.head_dim; ++d) out[d] = from_float<T>(row[static_cast<size_t>(d)] * inverse);
}

}  // namespace

void flash_decode(const DecodeArguments& arguments, const ParallelFor& parallel) {
  visit_scalar(arguments.type, [&](auto zero) {
    using T = decltype(zero);
    const DecodeArguments& a = arguments;
    const int64_t rows = int64_t{a.batch} * a.heads * a.seq_q;
    parallel(0, rows, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scores, row;
      for (int64_t index = begin; index < end; ++index) {
        const int64_t pair = index / a.seq_q;
        decode_row<T>(a, pair / a.heads, pair % a.heads, index % a.seq_q, scores, row);
      }
    });
  });
}

}  // namespace cuda_llm_ops::cpu
