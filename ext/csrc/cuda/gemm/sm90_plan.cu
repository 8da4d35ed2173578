#include "sm90_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

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
  if (kernel.swap) return kernel.p_mn_major == b && kernel.q_mn_major == a && arguments.m <= kernel.tile_n;
  return kernel.p_mn_major == a && kernel.q_mn_major == b;
}

const Measured* find_measured(const GemmArguments& arguments) {
  if (arguments.batch != 1) return nullptr;
  const auto row = std::find_if(std::begin(measured), std::end(measured), [&](const Measured& entry) {
    return entry.m == arguments.m && entry.n == arguments.n && entry.k == arguments.k &&
           entry.a_mn_major == a_mn_major(arguments) && entry.b_mn_major == b_mn_major(arguments);
  });
  return row == std::end(measured) ? nullptr : row;
}

bool is_plan(const Measured& row, const Plan& plan) {
  const Kernel& kernel = *plan.kernel;
  const Family family = kernel.persistent ? Family::persistent : kernel.swap ? Family::skinny : Family::split;
  return family == row.family && kernel.tile_m == row.tile_m && kernel.tile_n == row.tile_n &&
         kernel.tile_k == row.tile_k && plan.split == row.split && plan.cluster_m == row.cluster_m &&
         plan.cluster_n == row.cluster_n;
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

// A block's loop goes at the pace of the slower of two: the tensor cores (n / 2 cycles for m64 x n x k16, and no faster
// than shared memory feeds them: 2048 + 32 n bytes at 128 a cycle), and the loads: L2 gave one SM at most 84 bytes a cycle, and
// no more than what is in flight over their latency.
// Around it lies what does not overlap: launch, first loads and drain; the epilogue; a split's exchange. The whole is
// never faster than memory, which is slower with few bytes in flight. Fitted to times on one NVIDIA H200
// (docs/ladder-gemm-hopper.md); the clock is the lower one that it keeps under such load.
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms) {
  constexpr double cycles_a_microsecond = 1550.0, l2_bytes_a_cycle = 84.0, memory_bytes_a_microsecond = 4.15e6;
  constexpr double load_latency_cycles = 2000.0;  // of a TMA load of cold data, so what is in flight bounds the pace
  const Kernel& kernel = *plan.kernel;
  const Shape shape = shape_of(arguments, kernel);
  const double tiles_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m) * plan.cluster_m;
  const double tiles_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n) * plan.cluster_n;
  const double blocks = tiles_m * tiles_n * shape.batch * plan.split;
  const double k_blocks = ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split);

  const double resident = std::min<double>(kernel.blocks_per_sm, std::ceil(blocks / sms));
  const double waves = std::ceil(blocks / (static_cast<double>(sms) * kernel.blocks_per_sm));

  const double wgmma = std::max(kernel.tile_n / 2.0, (2048.0 + 32.0 * kernel.tile_n) / 128.0);
  const double tensor = kernel.tile_m / 64.0 * wgmma * (kernel.tile_k / 16.0);
  const double loaded = 2.0 * kernel.tile_k * (kernel.tile_m + kernel.tile_n);
  const double pace = std::min(l2_bytes_a_cycle, resident * kernel.shared_bytes / load_latency_cycles);
  const double area = kernel.tile_m * kernel.tile_n / 4096.0;
  const double loop = k_blocks * std::max(tensor, loaded / pace) / cycles_a_microsecond *
                      (1.0 + 0.03 * std::log2(8.0 / area));  // smaller tiles read more, and lose a little everywhere

  const double exchange = plan.split > 1 ? area * (0.35 + 0.08 * plan.split) : 0.0;
  const double epilogue = kernel.persistent ? 0.1 + 0.12 * area : 0.17 * area;
  const double outside = kernel.persistent ? 3.6 + 0.05 * (plan.cluster_m * plan.cluster_n - 1) : 2.8;

  const double out_bytes = arguments.out_type == ScalarType::float32 ? 4.0 : 2.0;
  const double bytes = 2.0 * shape.batch * (static_cast<double>(shape.rows) + shape.columns) * shape.k +
                       out_bytes * shape.batch * shape.rows * shape.columns;
  const double in_flight = std::min(blocks / sms, resident) * kernel.shared_bytes;
  const double memory = bytes / (memory_bytes_a_microsecond * std::min(1.0, in_flight / 60000.0));
  return outside + std::max(waves * resident * (loop + epilogue + exchange), memory + epilogue + exchange);
}

Plan choose_plan(const GemmArguments& arguments, int sms) {
  const std::vector<Plan> plans = possible_plans(arguments);
  if (const Measured* row = sms == measured_multiprocessors ? find_measured(arguments) : nullptr) {
    for (const Plan& plan : plans) {
      if (is_plan(*row, plan)) return plan;
    }
  }
  Plan best;
  double least = 0.0;
  for (const Plan& plan : plans) {
    const double time = modelled_microseconds(arguments, plan, sms);
    if (best.kernel == nullptr || time < least) best = plan, least = time;
  }
  return best;
}

}  // namespace cuda_llm_ops::cuda::sm90
