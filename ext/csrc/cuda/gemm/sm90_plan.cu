#include "sm90_plan.h"

#include <algorithm>
#include <functional>

#include "sm90_table.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// The product as a kernel sees it: D = P Q.
struct Shape {
  int64_t rows, columns, k, batch;
};

Shape shape_of(const GemmArguments& arguments, const Kernel& kernel) {
  if (kernel.swap) return {arguments.n, arguments.m, arguments.k, arguments.batch};
  return {arguments.m, arguments.n, arguments.k, arguments.batch};
}

// Storage as the kernels name it. A vector is both; K-major is preferred then.
bool a_mn_major(const GemmArguments& arguments) { return arguments.a_stride_k != 1 && arguments.k > 1; }
bool b_mn_major(const GemmArguments& arguments) { return arguments.b_stride_k != 1 && arguments.k > 1; }

bool fits(const GemmArguments& arguments, const Kernel& kernel) {
  if (kernel.type != arguments.in_type) return false;
  const bool a = a_mn_major(arguments), b = b_mn_major(arguments);
  if (kernel.swap) return kernel.p_mn_major == b && kernel.q_mn_major == a && arguments.m <= 2 * kernel.tile_n;
  return kernel.p_mn_major == a && kernel.q_mn_major == b;
}

}  // namespace

const std::vector<const Kernel*>& all_kernels() {
  static const std::vector<const Kernel*> all = [] {
    std::vector<const Kernel*> kernels;
    for (const KernelList& list : {persistent_float16(), persistent_bfloat16(), split_float16(), split_bfloat16(),
                                   skinny_float16(), skinny_bfloat16()}) {
      for (int i = 0; i < list.count; ++i) kernels.push_back(list.kernels + i);
    }
    std::sort(kernels.begin(), kernels.end(), std::less<>());  // so that a kernel's index is a binary search
    return kernels;
  }();
  return all;
}

std::vector<Plan> possible_plans(const GemmArguments& arguments) {
  std::vector<Plan> plans;
  for (const Kernel* kernel : all_kernels()) {
    if (!fits(arguments, *kernel)) continue;
    const Shape shape = shape_of(arguments, *kernel);
    const int tiles_m = ceil_div(shape.rows, kernel->tile_m), tiles_n = ceil_div(shape.columns, kernel->tile_n);
    if (kernel->persistent) {
      for (const int cluster_m : {1, 2, 4}) {
        for (const int cluster_n : {1, 2, 4}) {
          if (cluster_m * cluster_n <= 8 && cluster_m <= tiles_m && cluster_n <= tiles_n &&
              kernel->tile_m / cluster_n >= 16 && kernel->tile_n / cluster_m >= 16) {
            plans.push_back({kernel, 1, cluster_m, cluster_n});
          }
        }
      }
    } else {
      const int k_blocks = ceil_div(shape.k, kernel->tile_k);
      for (const int split : splits) {
        if (split <= k_blocks) plans.push_back({kernel, split, 1, 1});
      }
    }
  }
  return plans;
}

// Three limits a block, the slowest counts: the tensor cores (n / 2 cycles for m64 x n x k16, and no faster than
// shared memory feeds them: 2048 + 32 n bytes at 128 a cycle), the SM's share of L2, and the card's memory. Around
// them what does not overlap: launch and first load, the epilogue, and the split's exchange. Cycles at 1.7 GHz, the
// clock of an H200 under such load; the constants were fitted to its measured times (docs/ladder-gemm-hopper.md).
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms) {
  const Kernel& kernel = *plan.kernel;
  const Shape shape = shape_of(arguments, kernel);
  const double tiles_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m) * plan.cluster_m;
  const double tiles_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n) * plan.cluster_n;
  const double tiles = tiles_m * tiles_n * shape.batch;
  const double k_blocks = static_cast<double>(ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split));

  const double wgmma = std::max(kernel.tile_n / 2.0, (2048.0 + 32.0 * kernel.tile_n) / 128.0);
  const double tensor = kernel.tile_m / 64.0 * wgmma * (kernel.tile_k / 16.0);
  const double loaded = 2.0 * kernel.tile_k *
                        (kernel.tile_m / static_cast<double>(plan.cluster_n) +
                         kernel.tile_n / static_cast<double>(plan.cluster_m));
  const double blocks = tiles * plan.split;
  const double slots = static_cast<double>(sms) * kernel.blocks_per_sm;
  const double resident = std::min<double>(kernel.blocks_per_sm, std::max(1.0, blocks / sms));
  const double waves = std::max(1.0, static_cast<double>(ceil_div(static_cast<int64_t>(blocks),
                                                                  static_cast<int64_t>(slots))));
  const double l2 = loaded / 55.0;
  const double main_loop = k_blocks * std::max(tensor, l2) * resident;
  const double out_bytes = arguments.out_type == ScalarType::float32 ? 4.0 : 2.0;
  const double epilogue = 600.0 + kernel.tile_m * kernel.tile_n / 24.0 / plan.split;
  const double exchange = plan.split > 1 ? 900.0 + 100.0 * plan.split : 0.0;
  const double cycles = 2600.0 + waves * (main_loop + epilogue + exchange);

  const double bytes = 2.0 * shape.batch * (static_cast<double>(shape.rows) + shape.columns) * shape.k +
                       out_bytes * shape.batch * shape.rows * shape.columns;
  // Few bytes in flight do not reach the memory's speed.
  const double in_flight = std::min(blocks, slots) / sms * kernel.shared_bytes / kernel.blocks_per_sm;
  const double bandwidth = 4.2e6 * std::min(1.0, in_flight / 50000.0);
  return std::max(cycles / 1700.0, 2.0 + bytes / bandwidth);
}

Plan choose_plan(const GemmArguments& arguments, int sms) {
  const std::vector<Plan> plans = possible_plans(arguments);
  Plan best;
  double least = 0.0;
  for (const Plan& plan : plans) {
    const double time = modelled_microseconds(arguments, plan, sms);
    if (best.kernel == nullptr || time < least) best = plan, least = time;
  }
  return best;
}

}  // namespace cuda_llm_ops::cuda::sm90
