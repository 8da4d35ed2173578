#include "plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "../../../arithmetic.h"
#include "clusters.h"
#include "plan_table.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

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
  if (kernel.swap) {
    if (kernel.p_mn_major != b || kernel.q_mn_major != a) return false;
    if (!kernel.persistent) return true;
    return arguments.out_type == arguments.in_type && arguments.c == nullptr && arguments.n % 8 == 0;  // TMA stores only
  }
  return kernel.p_mn_major == a && kernel.q_mn_major == b;
}

// Whether a second kernel may add parts of k.
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
  const bool swap =
      row.kind == KernelKind::skinny || row.kind == KernelKind::swapped ||
                    row.kind == KernelKind::pingpong_swapped || row.kind == KernelKind::multicast_swapped;
  return swap ? row.tile_n : row.tile_m;
}

// Some numbers of rows are measured. What lies between goes as the next: of few rows, where one tile holds them all, since
// the weights take the time then; up to a thousand, where an eighth more rows are as many tiles. Of more rows the next was
// no better a guide than the model.
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
  const KernelKind kind = kernel.pingpong  ? (kernel.swap ? KernelKind::pingpong_swapped : KernelKind::pingpong)
                        : kernel.multicasts      ? (kernel.swap ? KernelKind::multicast_swapped : KernelKind::multicast)
                        : kernel.persistent ? (kernel.swap ? KernelKind::swapped : KernelKind::persistent)
                                            : (kernel.swap ? KernelKind::skinny : KernelKind::split_k);
  return kind == row.kind && kernel.tile_m == row.tile_m && kernel.tile_n == row.tile_n &&
         kernel.tile_k == row.tile_k && kernel.stages == row.stages && plan.split == row.split &&
         plan.cluster_m == row.cluster_m && plan.cluster_n == row.cluster_n && plan.parts == 1;
}

// Of kernels whose clusters share operands: those that also split k, or whose products of parts of k a second kernel adds.
// What does neither, the persistent kernels do as well; what shares nothing, the split kernels, but in five. Up to 64 rows have
// other plans, and up to 128 memory takes the time of tall tiles (docs/ladder-gemm-hopper.md, step 21).
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
    for (const KernelList& list : {persistent_float16(), persistent_bfloat16(), swapped_float16(), swapped_bfloat16(),
                                   split_k_float16(), split_k_bfloat16(), skinny_float16(), skinny_bfloat16(),
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
      plans.push_back({kernel, 1, 1, 1});  // larger clusters than of two never won
      if (tiles_m >= 2) plans.push_back({kernel, 1, 2, 1});
      if (tiles_n >= 2) plans.push_back({kernel, 1, 1, 2});
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

size_t parts_bytes(const GemmArguments& arguments, const Plan& plan) {
  return plan.parts > 1 ? sizeof(float) * plan.parts * arguments.m * arguments.n : 0;
}

bool fetches_ahead(const GemmArguments& arguments, const Plan& plan) {
  constexpr int64_t least_bytes = 32 << 20, most_bytes = 256 << 20;  // measured from 34 to 235 MB of weights
  const Kernel& kernel = *plan.kernel;
  const int rows_a_tile = kernel.swap ? kernel.tile_n * plan.cluster_n : kernel.tile_m * plan.cluster_m;
  const int64_t bytes = int64_t{2} * arguments.n * arguments.k;
  return arguments.batch == 1 && arguments.m <= rows_a_tile && bytes >= least_bytes && bytes <= most_bytes;
}

namespace {

// A sum of times of which the longest takes nearly all, and a little more where others are close.
double slowest(std::initializer_list<double> times) {
  double sum = 0.0;
  for (const double time : times) sum += time * time * time * time;
  return std::sqrt(std::sqrt(sum));
}

// Of kernels whose clusters share operands, the same by constants of their own: a block asks L2 for its part of what is
// shared, and receives all of it. Fitted to 10,000 times of 400 products, and to what the choice between these plans
// and the others costs (docs/ladder-gemm-hopper.md, step 21).
double multicast_microseconds(const GemmArguments& arguments, const Plan& plan, int sms) {
  constexpr double outside = 3.699, cycles_a_microsecond = 1446.7;
  constexpr double barrier_cycles = 0.51, more_of_one_warpgroup = 10.97;
  constexpr double asked_bytes_a_microsecond = 125989.0, received_bytes_a_microsecond = 199991.0;
  constexpr double latency = 0.949, more_in_clusters = 0.355;  // microseconds, for a ring of stages
  constexpr double memory_bytes_a_microsecond = 4352920.0, read_again = 0.199, cost_of_idle = 0.0999;
  constexpr double epilogue_a_panel = 0.0771, exchange_a_panel = 0.4533;  // 64 x 64
  constexpr double second_kernel = 0.742, parts_bytes_a_microsecond = 1788814.0;
  constexpr double outside_a_wave = 5.59, cost_of_late_clusters = 1.067;
  const double asked_of_them = arguments.m <= 128 ? 1.05 : 1.065;  // so much quicker they must seem than other plans
  const Kernel& kernel = *plan.kernel;
  const Shape shape = shape_of(arguments, kernel);
  const int clusters_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m);
  const int clusters_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n);
  const int sharing = plan.cluster_m * plan.cluster_n, cluster = plan.split * sharing;
  const double clusters = static_cast<double>(clusters_m) * clusters_n * shape.batch * plan.parts;
  const double waves = std::ceil(clusters / clusters_at_once(kernel, cluster, sms));
  const double k_blocks = ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split * plan.parts);

  const double tensor = (kernel.tile_m / 64.0 * (kernel.tile_k / 16.0) * kernel.tile_n / 2.0 + barrier_cycles +
                         (kernel.tile_m == 64 ? more_of_one_warpgroup : 0.0)) /
                        cycles_a_microsecond;
  const double line = 2.0 * kernel.tile_k;
  const double asked = line * (static_cast<double>(kernel.tile_m) / plan.cluster_n +
                               static_cast<double>(kernel.tile_n) / plan.cluster_m) / asked_bytes_a_microsecond;
  const double received = line * (kernel.tile_m + kernel.tile_n) / received_bytes_a_microsecond;
  const double waiting = (latency + (sharing > 1 ? more_in_clusters : 0.0)) / kernel.stages;
  const double loop = waves * k_blocks * slowest({tensor, asked, received, waiting});

  const double weights_again = 1.0 + read_again * ((kernel.swap ? clusters_n : clusters_m) - 1.0);
  const double bytes = 2.0 * shape.batch *
                       ((arguments.n * weights_again + arguments.m) * shape.k +
                        static_cast<double>(arguments.m) * arguments.n);
  const double busy = std::min(clusters * cluster / sms, 1.0);
  const double memory = bytes / memory_bytes_a_microsecond / std::pow(busy, cost_of_idle);

  const double panels = kernel.tile_m * kernel.tile_n / 4096.0;
  double time = outside + slowest({loop, memory}) + panels * epilogue_a_panel + outside_a_wave * (waves - 1.0);
  if (plan.split > 1) time += panels * exchange_a_panel * (plan.split - 1.0) / plan.split;
  if (plan.parts > 1) {
    time += second_kernel + static_cast<double>(parts_bytes(arguments, plan)) / parts_bytes_a_microsecond;
  }
  return asked_of_them * time * (plan.split > 1 && waves > 1.0 ? cost_of_late_clusters : 1.0);
}

}  // namespace

// A k block of a block costs what the slowest of three needs, and a little more where two are close: the tensor cores (n / 2
// cycles for m64 x n x k16) and the barriers around them; the loads, which are as fast as what is in flight over their
// latency; and the card's L2. Around the loop lies what does not overlap: launch, first loads and drain, and again for
// every further wave of blocks that take one tile each; a stage, before the first product; the epilogue, and a split's
// exchange; parts of k cost a second kernel, and their way through L2. The whole is never faster than memory, which is
// slower with few bytes in flight, of weights above all, or if some multiprocessors have more to read than others; and
// weights that several tiles read apart from each other come from memory more than once, in part. The constants are fitted
// to 28,000 times of plans on one NVIDIA H200, whose clock sinks while the tensor cores work (docs/ladder-gemm-hopper.md,
// step 17), those of parts to 514 (step 18), of pingpong warpgroups to 7,000 (step 20).
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms) {
  constexpr double cycles_a_microsecond = 1394.7, barrier_cycles = 16.9;
  constexpr double load_latency = 1.303, more_in_narrow_blocks = 1.144;  // microseconds; of one consumer warpgroup
  constexpr double l2_bytes_a_microsecond = 18.25e6;
  constexpr double cost_within_lines = 1.848;                                         // of L2, seen at one product
  constexpr double memory_bytes_a_microsecond = 4.298e6, saturating_bytes = 34504.3;  // in flight on a multiprocessor
  constexpr double saturating_weights = 44409.8;                                      // of these, and what is lost without
  constexpr double share_of_128_byte_lines = 0.9874;  // of that, where a k block is no more of a row
  constexpr double cost_of_imbalance = 0.2093, even = 0.9883;  // exponent; what counts as even
  constexpr double read_again = 0.2545;                        // of weights, for each further row of tiles
  constexpr double persistent_outside = 1.445, split_outside = 2.100, gain_of_fetching_ahead = 0.608;  // microseconds
  constexpr double outside_a_wave = 2.126, outside_a_stage_byte = 30.48e-6;
  constexpr double cost_of_rows_beyond = 0.386;  // of a tile, with all of its rows
  constexpr double persistent_epilogue_a_panel = 0.0165, epilogue_a_panel = 0.1053, exchange_a_panel = 0.1398;  // 64 x 64
  constexpr double exchange_anyhow = 0.228, of_two_blocks = 1.0245;  // microseconds; of memory's time, where two share an SM
  constexpr double split_loop = 0.9821, cost_of_a_cluster = 0.0513, cost_of_late_clusters = 1.25;
  // Of warpgroups that alternate, for each turn but the first: a part of its loop, microseconds.
  constexpr double gain_a_turn = 0.035, gain_a_panel = 0.079, panels_without_gain = 1.25, cost_of_one_turn = 1.0105;
  constexpr double cost_of_skinny_tiles = 1.039;  // side by side
  constexpr double second_kernel = 1.144, parts_bytes_a_microsecond = 1.953e6, cost_of_parts = 1.05;
  const Kernel& kernel = *plan.kernel;
  if (kernel.multicasts) return multicast_microseconds(arguments, plan, sms);
  const Shape shape = shape_of(arguments, kernel);
  const int clusters_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m);
  const int clusters_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n);
  const double tiles_m = clusters_m * plan.cluster_m, tiles_n = clusters_n * plan.cluster_n;
  const int cluster = plan.split * plan.cluster_m * plan.cluster_n;
  const double blocks = tiles_m * tiles_n * shape.batch * plan.split * plan.parts;
  const double k_blocks = ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split * plan.parts);

  const double slots = static_cast<double>(sms) * kernel.blocks_per_sm;
  const double resident = std::min<double>(kernel.blocks_per_sm, std::ceil(blocks / sms));
  const double waves = std::ceil(blocks / cluster / clusters_at_once(kernel, cluster, sms));

  const double instructions = kernel.tile_m / 64.0 * (kernel.tile_k / 16.0);
  const int q_extent = kernel.q_mn_major ? ceil_div(kernel.tile_n, 64) * 64 : kernel.tile_n;
  const double stage = 2.0 * kernel.tile_k * (kernel.tile_m + q_extent);
  const double ring = kernel.persistent ? kernel.shared_bytes : kernel.stages * (stage + 16.0);
  // Rows of k that begin within a line of 128 bytes take two lines for each.
  const bool within_lines = arguments.k % 64 != 0 && !(kernel.p_mn_major && kernel.q_mn_major);
  const double from_l2 = (within_lines ? cost_within_lines : 1.0) * 2.0 * kernel.tile_k *
                         (static_cast<double>(kernel.tile_m) / plan.cluster_n +
                          static_cast<double>(kernel.tile_n) / plan.cluster_m);
  const double tensor = (instructions * kernel.tile_n / 2.0 + barrier_cycles) / cycles_a_microsecond;
  const double loads =
      stage / (resident * ring) * load_latency * (kernel.tile_m == 64 ? more_in_narrow_blocks : 1.0);
  const double l2 = from_l2 * std::min(blocks, slots) / (resident * l2_bytes_a_microsecond);
  const double loop = (kernel.persistent ? 1.0 : split_loop) * k_blocks * slowest({tensor, loads, l2});

  const double panels = kernel.tile_m * kernel.tile_n / 4096.0;
  const double after = kernel.persistent ? 0.0
                                         : panels * (epilogue_a_panel + (plan.split > 1 ? exchange_a_panel * plan.split : 0));

  const double out_bytes = arguments.out_type == ScalarType::float32 ? 4.0 : 2.0;
  const double weights_again = read_again * ((kernel.swap ? clusters_n : clusters_m) - 1.0) * arguments.n;  // rows of b
  const double bytes = 2.0 * shape.batch * (static_cast<double>(shape.rows) + shape.columns + weights_again) * shape.k +
                       out_bytes * shape.batch * shape.rows * shape.columns;
  const double filled = std::min(blocks / sms, resident);
  const double in_flight = filled * ring;
  const double weights_in_flight = filled * 2.0 * kernel.tile_k * (kernel.swap ? kernel.tile_m : kernel.tile_n) * kernel.stages;
  const double balance = blocks / (std::ceil(blocks / sms) * sms);
  const double bandwidth = memory_bytes_a_microsecond * std::min(1.0, in_flight / saturating_bytes) *
                           std::sqrt(std::min(1.0, weights_in_flight / saturating_weights)) *
                           std::pow(std::min(1.0, balance / even), cost_of_imbalance) *
                           (kernel.tile_k < 128 ? share_of_128_byte_lines : 1.0);
  // MN-major rows that a tile has beyond `a` are loaded as zeros, which takes longer than loading rows. Others are not.
  const int rows_a_tile = kernel.swap ? kernel.tile_n : kernel.tile_m;
  const bool loads_all = kernel.swap ? kernel.q_mn_major : kernel.p_mn_major;
  const double too_high = loads_all && rows_a_tile >= 2 * std::max(arguments.m, 8) ? 1.02 : 1.0;
  const int a_tiles = ceil_div(arguments.m, rows_a_tile);
  const double beyond = loads_all && a_tiles > 1 && arguments.m % 8 != 0
                            ? a_tiles - static_cast<double>(arguments.m) / rows_a_tile
                            : 0.0;
  const double ragged = 1.0 + cost_of_rows_beyond * beyond / (waves > 1.0 ? 2.0 : 1.0);
  const double memory = (kernel.blocks_per_sm == 2 ? of_two_blocks : 1.0) * too_high * bytes / bandwidth;
  // Measured for up to 64 rows; with more, arithmetic takes the time.
  const double ahead = arguments.m <= 64 && fetches_ahead(arguments, plan) ? gain_of_fetching_ahead : 0.0;
  const double outside = kernel.persistent ? persistent_outside + persistent_epilogue_a_panel * panels
                                           : split_outside - ahead + (plan.split > 1 ? exchange_anyhow : 0.0) +
                                                 outside_a_wave * (waves - 1.0);
  // Of two warpgroups that alternate one multiplies while the other stores; with one tile a block one has no work.
  const double gain = gain_a_turn * loop + gain_a_panel * std::max(panels - panels_without_gain, 0.0);
  const double overlapped = kernel.pingpong ? gain * (waves - 1.0) : 0.0;
  const double body = slowest({waves * resident * (ragged * loop + after) - overlapped, ragged * memory + after});
  const bool late = plan.split > 1 && waves > 1.0;  // of 1,790 products none was quickest so
  double alone = outside + outside_a_stage_byte * stage + body;
  if (plan.cluster_m * plan.cluster_n > 1) alone *= 1.0 + cost_of_a_cluster;
  if (late) alone *= cost_of_late_clusters;
  if (kernel.pingpong && waves == 1.0) alone *= cost_of_one_turn;
  if (!kernel.persistent && kernel.swap && tiles_n > 1.0) alone *= cost_of_skinny_tiles;
  if (plan.parts == 1) return alone;
  return cost_of_parts * (alone + second_kernel + static_cast<double>(parts_bytes(arguments, plan)) / parts_bytes_a_microsecond);
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
