// flash_decode on 8-bit caches, on the CPU: decode.cpp with numbers that have scales. Made to be read and to be right.
#include "../decode_quantised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8_scalar.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

// The float that each byte of a cache stands for.
std::array<float, 256> numbers(CacheType type) {
  if (type == CacheType::e4m3) return fp8_numbers(Fp8Type::e4m3);
  std::array<float, 256> all{};
  for (int byte = 0; byte < 256; ++byte)
    all[static_cast<size_t>(byte)] = static_cast<float>(byte < 128 ? byte : byte - 256);
  return all;
}

// A cache, or its scales, of one kv head of one sequence.
struct Place {
  int64_t page, slot;

  int64_t offset(const CacheStrides& stride) const { return page * stride.page + slot * stride.slot; }
};

Place place_of(const DecodeArguments& a, int64_t batch, int64_t key) {
  const int64_t index = key / a.page_size;
  const int64_t page =
      a.block_table == nullptr ? batch : a.block_table[batch * a.table_stride_batch + index * a.table_stride_page];
  return {page, key % a.page_size};
}

struct Room {
  std::vector<float> scores;
  std::vector<double> row;
};

template <typename T>
void decode_row(const QuantisedDecodeArguments& a, const std::array<float, 256>& number, int64_t batch, int64_t head,
                int64_t query, Room& room) {
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  const T* const q =
      static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head + query * a.q_stride.seq;
  const uint8_t* const k = static_cast<const uint8_t*>(a.k) + kv_head * a.k_stride.head;
  const uint8_t* const v = static_cast<const uint8_t*>(a.v) + kv_head * a.v_stride.head;
  const auto scale_at = [&](const float* scales, const CacheStrides& stride, const Place& place) {
    return scales == nullptr ? 1.0f : scales[kv_head * stride.head + place.offset(stride)];
  };
  T* const out = static_cast<T*>(a.out) + ((batch * a.heads + head) * a.seq_q + query) * a.head_dim;
  const int64_t seen = std::max<int64_t>(0, int64_t{a.cache_lens[batch * a.lens_stride]} - (a.seq_q - 1 - query));

  // A maximum that drops NaN: the NaN score itself makes the sum NaN below.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  room.scores.resize(static_cast<size_t>(seen));
  float maximum = -kInfinity;
  for (int64_t j = 0; j < seen; ++j) {
    const Place place = place_of(a, batch, j);
    const uint8_t* const key = k + place.offset(a.k_stride);
    double products = 0.0;
    for (int d = 0; d < a.head_dim; ++d) products += double{to_float(q[d])} * number[key[d]];
    const auto score = static_cast<float>(products * a.scale * double{scale_at(a.k_scale, a.k_scale_stride, place)});
    room.scores[static_cast<size_t>(j)] = score;
    maximum = score > maximum ? score : maximum;
  }
  const float base = maximum == -kInfinity ? 0.0f : maximum;
  room.row.assign(static_cast<size_t>(a.head_dim), 0.0);
  double sum = 0.0;
  for (int64_t j = 0; j < seen; ++j) {
    const float weight = std::exp(room.scores[static_cast<size_t>(j)] - base);
    const Place place = place_of(a, batch, j);
    const uint8_t* const value = v + place.offset(a.v_stride);
    const float scaled = weight * scale_at(a.v_scale, a.v_scale_stride, place);
    sum += weight;
    for (int d = 0; d < a.head_dim; ++d) room.row[static_cast<size_t>(d)] += double{scaled} * number[value[d]];
  }
  const double inverse = sum == 0.0 ? 0.0 : 1.0 / sum;
  for (int d = 0; d < a.head_dim; ++d) {
    out[d] = from_float<T>(static_cast<float>(room.row[static_cast<size_t>(d)] * inverse));
  }
}

}  // namespace

void quantised_decode(const QuantisedDecodeArguments& arguments, const ParallelFor& parallel) {
  const std::array<float, 256> number = numbers(arguments.cache_type);
  visit_scalar(arguments.type, [&](auto zero) {
    using T = decltype(zero);
    const QuantisedDecodeArguments& a = arguments;
    const int64_t rows = int64_t{a.batch} * a.heads * a.seq_q;
    parallel(0, rows, 1, [&](int64_t begin, int64_t end) {
      Room room;
      for (int64_t index = begin; index < end; ++index) {
        const int64_t pair = index / a.seq_q;
        decode_row<T>(a, number, pair / a.heads, pair % a.heads, index % a.seq_q, room);
      }
    });
  });
}

}  // namespace cuda_llm_ops::cpu
