// The cost model of weight-only products of few rows for many plans at once, and the plan it chooses, for weights.py.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cuda/weight_only/sm90/few_rows_plan.h"

namespace sm90 = cuda_llm_ops::cuda::weight_only::sm90;
using cuda_llm_ops::WeightOnlyArguments;

namespace {

// In the order of FIELDS in weights.py.
struct Row {
  int32_t m, n, k, bits, group, zeros;
  int32_t tiles, parts, cluster;
  int32_t multiprocessors, cut_nanoseconds;
};

Row row_at(const int32_t* rows, int64_t index) {
  Row row;
  std::memcpy(&row, rows + index * (sizeof(row) / sizeof(int32_t)), sizeof(row));
  return row;
}

WeightOnlyArguments arguments_of(const Row& row) {
  static const int zeros = 0;
  WeightOnlyArguments a;
  a.m = row.m, a.n = row.n, a.k = row.k, a.bits = row.bits, a.group = row.group;
  a.zeros = row.zeros != 0 ? &zeros : nullptr;
  return a;
}

int32_t tile_rows(const Row& row) { return row.m <= 8 ? 8 : 16; }

}  // namespace

extern "C" {

int fields_of_a_row() { return sizeof(Row) / sizeof(int32_t); }
int few_rows_constants() { return sizeof(sm90::FewRowsCosts) / sizeof(double); }

void microseconds(const int32_t* rows, int64_t count, const double* constants, double* out) {
  sm90::FewRowsCosts costs;
  std::memcpy(&costs, constants, sizeof(costs));
  for (int64_t i = 0; i < count; ++i) {
    const Row row = row_at(rows, i);
    const double time = sm90::few_rows_microseconds(arguments_of(row), tile_rows(row),
                                                    {row.tiles, row.parts, row.cluster}, row.multiprocessors, costs);
    out[i] = row.cut_nanoseconds > 0 ? std::min(time, row.cut_nanoseconds / 1000.0) : time;
  }
}

// tiles, parts and cluster of the plan of a product.
void chosen(const int32_t* row_of, int32_t* plan) {
  const Row row = row_at(row_of, 0);
  const sm90::FewRowsPlan found = sm90::few_rows_plan(arguments_of(row), tile_rows(row), row.multiprocessors);
  plan[0] = found.tiles, plan[1] = found.parts, plan[2] = found.cluster;
}

}  // extern "C"
