#include "plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "../../../arithmetic.h"
#include "clusters.h"
#include "cost_model.h"
#include "plan_table.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

// Storage as the kernels name it. A vector is both; K-major is preferred then.
bool a_mn_major(const GemmArguments& arguments) { return arguments.a_stride_k != 1 && arguments.k > 1; }
bool b_mn_major(const GemmArguments& arguments) { return arguments.b_stride_k != 1 && arguments.k > 1; }

bool fits(const GemmArguments& arguments, const Kernel& kernel) {
  if (kernel.type != arguments.in_type) return false;
  const bool a = a_mn_major(arguments), b = b_mn_major(arguments);
  if (kernel.swap) {
    if (kernel.p_mn_major != b || kernel.q_mn_major != a) return false;
    if (!kernel.persistent) return true;
    return arguments.c == nullptr && arguments.n % 8 == 0;  // TMA stores only
  }
  return kernel.p_mn_major == a && kernel.q_mn_major == b;
}

// True if rows of an operand, as it is stored, begin within lines of 128 bytes.
bool begins_within_lines(const Shape& shape, const Kernel& kernel) {
  return (kernel.p_mn_major ? shape.rows : shape.k) % 64 != 0 ||
         (kernel.q_mn_major ? shape.columns : shape.k) % 64 != 0;
}

// True if a second kernel may add parts of k.
bool may_add_parts(const GemmArguments& arguments) {
  constexpr int64_t kMostElements = 1 << 24;  // of a part
  return arguments.batch == 1 && arguments.n % 8 == 0 && int64_t{arguments.m} * arguments.n <= kMostElements;
}

// Of a split kernel's: of large tiles, a block a multiprocessor.
bool adds_parts(const GemmArguments& arguments, const Kernel& kernel) {
  return may_add_parts(arguments) && kernel.blocks_per_sm == 1 && kernel.tile_m == 128 && kernel.tile_n >= 96 &&
         kernel.tile_k == 64;
}

const Measured* find_measured(const GemmArguments& arguments, int m) {
  if (arguments.batch != 1) return nullptr;
  const auto row = std::find_if(std::begin(kMeasured), std::end(kMeasured), [&](const Measured& entry) {
    return entry.m == m && entry.n == arguments.n && entry.k == arguments.k &&
           entry.a_mn_major == a_mn_major(arguments) && entry.b_mn_major == b_mn_major(arguments);
  });
  return row == std::end(kMeasured) ? nullptr : row;
}

// Rows of `a` that a tile of a measured plan has.
int tile_rows(const Measured& row) {
  const bool swap = row.kind == KernelKind::skinny || row.kind == KernelKind::swapped ||
                    row.kind == KernelKind::pingpong_swapped || row.kind == KernelKind::multicast_swapped;
  return swap ? row.tile_n : row.tile_m;
}

// Only some numbers of rows are measured. A number between two of them takes the plan of the next larger one in two
// cases: few rows that one tile holds, because then the weights take the time; and up to a thousand rows, if the larger
// number is at most an eighth more and needs as many tiles. For more rows the next number was no better a guide than
// the model.
const Measured* find_measured(const GemmArguments& arguments) {
  if (const Measured* row = find_measured(arguments, arguments.m)) return row;
  for (const int m : {4, 16, 32, 64, 128}) {
    if (m < arguments.m) continue;
    const Measured* const row = find_measured(arguments, m);
    return row != nullptr && tile_rows(*row) >= arguments.m ? row : nullptr;
  }
  const int last = std::min(arguments.m + arguments.m / 8, 1024);
  for (int m = (arguments.m / 16 + 1) * 16; m <= last; m += 16) {
    const Measured* const row = find_measured(arguments, m);
    if (row != nullptr) return ceil_div(m, tile_rows(*row)) == ceil_div(arguments.m, tile_rows(*row)) ? row : nullptr;
  }
  return nullptr;
}

bool is_plan(const Measured& row, const Plan& plan) {
  const Kernel& kernel = *plan.kernel;
  const KernelKind kind = kernel.pingpong     ? (kernel.swap ? KernelKind::pingpong_swapped : KernelKind::pingpong)
                          : kernel.multicasts ? (kernel.swap ? KernelKind::multicast_swapped : KernelKind::multicast)
                          : kernel.persistent ? (kernel.swap ? KernelKind::swapped : KernelKind::persistent)
                                              : (kernel.swap ? KernelKind::skinny : KernelKind::split_k);
  return kind == row.kind && kernel.tile_m == row.tile_m && kernel.tile_n == row.tile_n &&
         kernel.tile_k == row.tile_k && kernel.stages == row.stages && plan.split == row.split &&
         plan.cluster_m == row.cluster_m && plan.cluster_n == row.cluster_n && plan.parts == 1;
}

// The plans of a multicast kernel: those that split k in the cluster, and those with parts of k through the workspace.
// Without either, the persistent kernels do the same. Without multicast, the split-K kernels do the same, except a
// split in five. Products of up to 64 rows have other plans. Up to 128 rows, memory takes all the time of tall tiles
// (docs/ladder-gemm-hopper.md, step 21).
void add_multicast_plans(const GemmArguments& arguments, const Kernel& kernel, int tiles_m, int tiles_n, bool parts,
                         std::vector<Plan>& plans) {
  const bool few_rows = arguments.m <= 128, low = kernel.tile_m == 64;
  if (arguments.m <= 64 || (few_rows && !low)) return;
  const int k_blocks = ceil_div(arguments.k, kernel.tile_k);
  const auto add = [&](int split, int m, int n, int count) {
    if (tiles_m < m || tiles_n < n || split * count > k_blocks || (kernel.splits >> split & 1) == 0) return;
    plans.push_back({&kernel, split, m, n, count});
  };
  if (low) add(5, 1, 1, 1);
  for (int split = 2; split <= 4; ++split) {
    if (!low || !kernel.swap) add(split, 2, 1, 1);
    add(split, 1, 2, 1);
  }
  if (!few_rows) add(2, 4, 1, 1);
  add(2, 1, 4, 1);
  add(2, 2, 2, 1);
  for (int count = 2; parts && may_add_parts(arguments) && count <= 3; ++count) add(1, 4, 2, count);
}

}  // namespace

const std::vector<const Kernel*>& all_kernels() {
  static const std::vector<const Kernel*> all = [] {
    std::vector<const Kernel*> kernels;
    for (const KernelList& list :
         {persistent_float16(), persistent_bfloat16(), swapped_float16(), swapped_bfloat16(), swapped_columns_float16(),
          swapped_columns_bfloat16(), split_k_float16(), split_k_bfloat16(), skinny_float16(), skinny_bfloat16(),
          multicast_float16(), multicast_bfloat16()}) {
      for (const Kernel& kernel : list) kernels.push_back(&kernel);
    }
    std::sort(kernels.begin(), kernels.end(), std::less<>());  // so that a kernel's index is a binary search
    return kernels;
  }();
  return all;
}

std::string plan_name(const Plan& plan) {
  return std::string(plan.kernel->name) + " split " + std::to_string(plan.split) + " cluster " +
         std::to_string(plan.cluster_m) + "x" + std::to_string(plan.cluster_n) +
         (plan.parts > 1 ? " parts " + std::to_string(plan.parts) : "");
}

std::vector<Plan> possible_plans(const GemmArguments& arguments, bool parts) {
  std::vector<Plan> plans;
  for (const Kernel* kernel : all_kernels()) {
    if (!fits(arguments, *kernel)) continue;
    const Shape shape = shape_of(arguments, *kernel);
    const int tiles_m = ceil_div(shape.rows, kernel->tile_m), tiles_n = ceil_div(shape.columns, kernel->tile_n);
    if (kernel->persistent) {
      plans.push_back({kernel, 1, 1, 1});
      if (tiles_m >= 2) plans.push_back({kernel, 1, 2, 1});
      if (tiles_n >= 2) plans.push_back({kernel, 1, 1, 2});
      // Larger clusters won only where L2 is the bound: rows that begin within lines of 128 bytes take two each.
      if (!begins_within_lines(shape, *kernel)) continue;
      if (tiles_m >= 2 && tiles_n >= 2) plans.push_back({kernel, 1, 2, 2});
      if (tiles_m >= 4) plans.push_back({kernel, 1, 4, 1});
      if (tiles_n >= 4) plans.push_back({kernel, 1, 1, 4});
    } else if (kernel->multicasts) {
      add_multicast_plans(arguments, *kernel, tiles_m, tiles_n, parts, plans);
    } else {
      const int k_blocks = ceil_div(shape.k, kernel->tile_k);
      for (const int split : kSplits) {
        if (kernel->swap && tiles_n > 1 && kernel->tile_n < 80) break;  // narrower ones are for one tile's rows
        if (split <= k_blocks && (kernel->splits >> split & 1) != 0) plans.push_back({kernel, split, 1, 1});
      }
      if (!parts || !adds_parts(arguments, *kernel)) continue;
      for (int count = 2; count <= std::min(kMostParts, k_blocks); ++count) {
        plans.push_back({kernel, 1, 1, 1, count});
      }
    }
  }
  return plans;
}

double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms) {
  const int cluster = plan.split * plan.cluster_m * plan.cluster_n;
  return modelled_microseconds(arguments, plan, sms, clusters_at_once(*plan.kernel, cluster, sms));
}

Plan choose_plan(const GemmArguments& arguments, int sms, bool parts) {
  const std::vector<Plan> plans = possible_plans(arguments, parts);
  if (const Measured* row = sms == kMeasuredMultiprocessors ? find_measured(arguments) : nullptr) {
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
