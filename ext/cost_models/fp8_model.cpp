// The cost model of FP8 products for many plans at once, for fp8.py.
#include <cstdint>
#include <cstring>

#include "cuda/fp8/sm90/cost_model.h"

namespace sm90 = cuda_llm_ops::cuda::fp8::sm90;

namespace {

// In the order of FIELDS in fp8.py.
struct Row {
  int32_t m, n, k;
  int32_t few_rows, block_scales, tile_m, tile_n, stage_k, stages, blocks_per_sm, cluster;
  int32_t multiprocessors;
};

}  // namespace

extern "C" {

int fields_of_a_row() { return sizeof(Row) / sizeof(int32_t); }
int persistent_constants() { return sizeof(sm90::PersistentCosts) / sizeof(double); }
int few_rows_constants() { return sizeof(sm90::FewRowsCosts) / sizeof(double); }

void microseconds(const int32_t* rows, int64_t count, const double* persistent, const double* few_rows, double* out) {
  sm90::CostModel costs;
  std::memcpy(&costs.persistent, persistent, sizeof(costs.persistent));
  std::memcpy(&costs.few_rows, few_rows, sizeof(costs.few_rows));
  for (int64_t i = 0; i < count; ++i) {
    Row row;
    std::memcpy(&row, rows + i * fields_of_a_row(), sizeof(row));
    cuda_llm_ops::Fp8GemmArguments arguments;
    arguments.m = row.m, arguments.n = row.n, arguments.k = row.k;
    sm90::Kernel kernel{};
    kernel.few_rows = row.few_rows, kernel.block_scales = row.block_scales;
    kernel.tile_m = row.tile_m, kernel.tile_n = row.tile_n;
    kernel.stage_k = row.stage_k, kernel.stages = row.stages, kernel.blocks_per_sm = row.blocks_per_sm;
    out[i] = sm90::modelled_microseconds(arguments, {&kernel, row.cluster}, row.multiprocessors, costs);
  }
}

}  // extern "C"
