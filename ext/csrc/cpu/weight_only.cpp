// The weight-only product on the CPU: a column's numbers less its zero point become float32, group after group, and are
// multiplied with every row; the scale multiplies the group's sum. Made to be read and to be right.
#include "../weight_only.h"

#include <vector>

#include "../arithmetic.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

int32_t number_at(const WeightOnlyArguments& g, int32_t column, int32_t at) {
  const int64_t tile = int64_t{column / kWeightColumns} * (g.k / kWeightDepth) + at / kWeightDepth;
  const WeightPlace place = weight_place(g.bits, column % kWeightColumns, at % kWeightDepth);
  const uint8_t byte = static_cast<const uint8_t*>(g.packed)[tile * weight_tile_bytes(g.bits) + place.byte];
  return g.bits == 8 ? static_cast<int8_t>(byte) : byte >> place.shift & 15;
}

template <typename T>
void product(const WeightOnlyArguments& g, const ParallelFor& parallel) {
  const int32_t group = g.bits == 8 ? g.k : g.group;
  std::vector<float> x(static_cast<size_t>(g.m) * g.k);
  for (int64_t i = 0; i < g.m; ++i) {
    const T* const row = static_cast<const T*>(g.x) + i * g.x_stride;
    for (int64_t at = 0; at < g.k; ++at) x[i * g.k + at] = to_float(row[at]);
  }
  parallel(0, g.n, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(g.k), sums(g.m);
    for (int64_t j = begin; j < end; ++j) {
      sums.assign(g.m, 0.0f);
      for (int32_t first = 0; first < g.k; first += group) {
        const int64_t of_group = int64_t{first / group} * g.n + j;
        const int32_t zero = g.bits == 8 ? 0 : g.zeros == nullptr ? 8 : static_cast<const uint8_t*>(g.zeros)[of_group];
        const float scale = to_float(static_cast<const T*>(g.scales)[of_group]);
        for (int32_t at = first; at < first + group; ++at) {
          weights[at] = static_cast<float>(number_at(g, static_cast<int32_t>(j), at) - zero);
        }
        for (int64_t i = 0; i < g.m; ++i) {
          float sum = 0.0f;
          for (int32_t at = first; at < first + group; ++at) sum += x[i * g.k + at] * weights[at];
          sums[i] += scale * sum;
        }
      }
      for (int64_t i = 0; i < g.m; ++i) static_cast<T*>(g.out)[i * g.n + j] = from_float<T>(sums[i]);
    }
  });
}

}  // namespace

void weight_only_gemm(const WeightOnlyArguments& arguments, const ParallelFor& parallel) {
  if (arguments.type == ScalarType::float16) {
    product<Float16>(arguments, parallel);
  } else {
    product<BFloat16>(arguments, parallel);
  }
}

}  // namespace cuda_llm_ops::cpu
