#include "cost_model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "../../../arithmetic.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {
namespace {

constexpr double kPairs = 4096.0;  // that a tensor core multiplies in a cycle

// A sum of times of which the longest takes nearly all, and a little more where others are close.
double slowest(std::initializer_list<double> times) {
  double sum = 0.0;
  for (const double time : times) sum += time * time * time * time;
  return std::sqrt(std::sqrt(sum));
}

// The tiles of a product, in clusters. The host does not know how many rows the groups have: all as many, if they share
// the rows, and all that they have room for otherwise.
int64_t likely_tiles_of(const Plan& plan, const Fp8GemmArguments& g) {
  if (g.group_sizes == nullptr || g.capacity > 0) return tiles_of(plan, g);
  const int64_t down = int64_t{g.groups} * ceil_div(ceil_div(g.m, g.groups), plan.kernel->tile_m);
  return down * ceil_div(ceil_div(g.n, plan.kernel->tile_n), plan.cluster);
}

double persistent_microseconds(const Fp8GemmArguments& g, const Plan& plan, int sms, const PersistentCosts& cost) {
  const Kernel& kernel = *plan.kernel;
  const int64_t waves = ceil_div(likely_tiles_of(plan, g), std::max<int64_t>(1, sms / plan.cluster));
  const double k_blocks = ceil_div(g.k, kFp8Block);
  // Two warpgroups leave the tensor cores idle where both add at a time. Tiles of 192 rows have three.
  const double products = 1.0 * kernel.tile_m * kernel.tile_n * kFp8Block / kPairs;
  const double idle = kernel.tile_m == 128   ? cost.one_round_cycles
                      : kernel.tile_m == 256 ? cost.two_rounds_cycles
                                             : 0.0;
  const double promotion = idle + (kernel.block_scales ? cost.scaled_cycles : 0.0);
  const double tensor = (products + promotion) / cost.cycles_a_microsecond;
  const double block = slowest({tensor, cost.latency / kernel.stages});
  const double loop = static_cast<double>(waves) * (k_blocks * block + cost.end);
  const double bytes = (1.0 * g.m + static_cast<double>(g.n) * g.groups) * g.k;
  const double memory = bytes / cost.memory_bytes_a_microsecond;
  return cost.outside + (plan.cluster > 1 ? cost.cluster_outside : 0.0) + slowest({loop, memory});
}

double few_rows_microseconds(const Fp8GemmArguments& g, const Plan& plan, int sms, const FewRowsCosts& cost) {
  const Kernel& kernel = *plan.kernel;
  const int64_t blocks = tiles_of(plan, g) * plan.cluster;
  const auto waves =
      static_cast<double>(ceil_div(blocks, int64_t{sms} * kernel.blocks_per_sm / plan.cluster * plan.cluster));
  const double stages = ceil_div(ceil_div(g.k, kernel.stage_k), plan.cluster);
  const double boxes = static_cast<double>(kernel.stage_k) / kFp8Block;
  const double row = cost.row + (kernel.block_scales ? cost.scaled_row : 0.0);
  const bool shared = kernel.blocks_per_sm > 1 && blocks > sms;
  const double loop = waves * stages * (cost.stage + boxes * (cost.box + row * kernel.tile_m)) *
                      (shared ? cost.shared_multiprocessor : 1.0);
  const double again = 1.0 + cost.tiles_read_again * (ceil_div(g.m, kernel.tile_m) - 1.0);
  const double bytes = static_cast<double>(g.n) * g.k * again + static_cast<double>(g.m) * g.k;
  const double memory = bytes / cost.memory_bytes_a_microsecond;
  // The blocks of a cluster share the rows, and each reads the parts of all.
  const double rows = std::min(g.m, kernel.tile_m);
  const double end = rows * (cost.end_a_row / plan.cluster + cost.peer_a_row);
  return cost.outside + cost.peer * (plan.cluster - 1.0) + cost.late_wave * (waves - 1.0) + waves * end +
         slowest({loop, memory});
}

}  // namespace

int64_t tiles_of(const Plan& plan, const Fp8GemmArguments& g) {
  const Kernel& kernel = *plan.kernel;
  const int64_t across = ceil_div(g.n, kernel.tile_n);
  if (kernel.few_rows) return across * ceil_div(g.m, kernel.tile_m);
  const int64_t down = g.group_sizes == nullptr ? ceil_div(g.m, kernel.tile_m)
                       : g.capacity > 0         ? int64_t{g.groups} * ceil_div(g.capacity, kernel.tile_m)
                                                : ceil_div(g.m, kernel.tile_m) + g.groups - 1;
  return down * ceil_div(across, plan.cluster);
}

double modelled_microseconds(const Fp8GemmArguments& g, const Plan& plan, int sms, const CostModel& costs) {
  return plan.kernel->few_rows ? few_rows_microseconds(g, plan, sms, costs.few_rows)
                               : persistent_microseconds(g, plan, sms, costs.persistent);
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
