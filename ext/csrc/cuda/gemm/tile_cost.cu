#include "tile_cost.h"

#include <algorithm>
#include <limits>

#include "../../arithmetic.h"

namespace cuda_llm_ops::cuda {
namespace {

constexpr int kReservedShared = 1024;  // bytes of shared memory the system keeps for each block

}  // namespace

double estimated_clocks(const TileCost& cost, const DeviceFacts& device, long long batch, int m, int n, int k) {
  if (cost.shared_bytes > device.shared_per_block) return std::numeric_limits<double>::infinity();
  const long long fitting = device.shared_per_sm / (cost.shared_bytes + kReservedShared);
  const long long resident = std::max(1LL, std::min<long long>(cost.blocks_per_sm, fitting));
  const long long blocks = batch * ceil_div(m, cost.m) * ceil_div(n, cost.n);
  const long long sharing = std::min(resident, ceil_div(blocks, device.multiprocessors));
  const long long rounds = ceil_div(blocks, sharing * device.multiprocessors);
  const double arithmetic = 2.0 * cost.m * cost.n * cost.k * static_cast<double>(sharing) / cost.flops_per_clock;
  const double step = std::max(arithmetic, static_cast<double>(cost.step_latency));
  return static_cast<double>(rounds) * (cost.round_latency + static_cast<double>(ceil_div(k, cost.k)) * step);
}

}  // namespace cuda_llm_ops::cuda
