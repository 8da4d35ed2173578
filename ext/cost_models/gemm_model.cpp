// The cost model of the Hopper GEMM for many plans at once, for gemm.py.
#include <cstdint>
#include <cstring>

#include "cuda/gemm/sm90/cost_model.h"

namespace sm90 = cuda_llm_ops::cuda::sm90;

namespace {

// In the order of FIELDS in gemm.py.
struct Row {
  int32_t m, n, k, batch, out_float;
  int32_t persistent, swap, pingpong, multicasts, p_mn_major, q_mn_major;
  int32_t tile_m, tile_n, tile_k, stages, shared_bytes, blocks_per_sm;
  int32_t split, cluster_m, cluster_n, parts, clusters, multiprocessors;
};

}  // namespace

extern "C" {

int fields_of_a_row() { return sizeof(Row) / sizeof(int32_t); }
int plan_constants() { return sizeof(sm90::PlanCosts) / sizeof(double); }
int multicast_constants() { return sizeof(sm90::MulticastCosts) / sizeof(double); }

// margins: with the margins that a plan must earn before it is chosen; without them the model is a time.
void modelled(const int32_t* rows, int64_t count, const double* plans, const double* multicast, int margins,
              double* out) {
  sm90::CostModel costs;
  std::memcpy(&costs.plans, plans, sizeof(costs.plans));
  std::memcpy(&costs.multicast, multicast, sizeof(costs.multicast));
  if (!margins) costs.margins = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
  for (int64_t i = 0; i < count; ++i) {
    Row row;
    std::memcpy(&row, rows + i * fields_of_a_row(), sizeof(row));
    cuda_llm_ops::GemmArguments arguments;
    arguments.m = row.m, arguments.n = row.n, arguments.k = row.k, arguments.batch = row.batch;
    arguments.in_type = cuda_llm_ops::ScalarType::float16;
    arguments.out_type = row.out_float ? cuda_llm_ops::ScalarType::float32 : cuda_llm_ops::ScalarType::float16;
    sm90::Kernel kernel{};
    kernel.persistent = row.persistent, kernel.swap = row.swap, kernel.pingpong = row.pingpong;
    kernel.multicasts = row.multicasts, kernel.p_mn_major = row.p_mn_major, kernel.q_mn_major = row.q_mn_major;
    kernel.tile_m = row.tile_m, kernel.tile_n = row.tile_n, kernel.tile_k = row.tile_k, kernel.stages = row.stages;
    kernel.shared_bytes = row.shared_bytes, kernel.blocks_per_sm = row.blocks_per_sm;
    const sm90::Plan plan{&kernel, row.split, row.cluster_m, row.cluster_n, row.parts};
    out[i] = sm90::modelled_microseconds(arguments, plan, row.multiprocessors, row.clusters, costs);
  }
}

void microseconds(const int32_t* rows, int64_t count, const double* plans, const double* multicast, double* out) {
  modelled(rows, count, plans, multicast, 0, out);
}

void choosing(const int32_t* rows, int64_t count, const double* plans, const double* multicast, double* out) {
  modelled(rows, count, plans, multicast, 1, out);
}

}  // extern "C"
