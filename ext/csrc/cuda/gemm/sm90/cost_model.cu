#include "cost_model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "../../../arithmetic.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

// A sum of times of which the longest takes nearly all, and a little more where others are close.
double slowest(std::initializer_list<double> times) {
  double sum = 0.0;
  for (const double time : times) sum += time * time * time * time;
  return std::sqrt(std::sqrt(sum));
}

// The factor on the bytes that L2 delivers of an operand, since pieces of 128 bytes begin inside a line, or inside a
// sector of 32 bytes. extent: the operand's rows or columns; tile: those of a tile.
double misplaced(const Shape& shape, bool mn_major, int64_t extent, int tile, double lines, double sectors) {
  const int64_t length = mn_major ? extent : shape.k, begin = mn_major ? tile : 0;
  if (length % 16 != 0 || begin % 16 != 0) return lines * sectors;
  return length % 64 != 0 || begin % 64 != 0 ? lines : 1.0;
}

// Columns of Q that a tile loads: of an MN-major one, whole pieces of 64.
int loaded_columns(const Kernel& kernel) {
  return kernel.q_mn_major ? ceil_div(kernel.tile_n, 64) * 64 : kernel.tile_n;
}

// Microseconds of a k block of an MN-major `a` of few rows: pieces of 128 bytes that end beyond the rows of `a` take
// long, and longer if many blocks ask for the few lines of memory that `a` has then. A cluster shares them.
double cut_pieces(const GemmArguments& arguments, const Plan& plan, double asking, const PlanCosts& cost) {
  const Kernel& kernel = *plan.kernel;
  const bool loads_pieces = kernel.swap ? kernel.q_mn_major : kernel.p_mn_major;
  if (!loads_pieces || arguments.m % 64 == 0 || arguments.m > (kernel.swap ? kernel.tile_n : kernel.tile_m)) return 0.0;
  const double crowd = 64.0 / std::min(arguments.m, 64) * asking;
  return (cost.cut_pieces + cost.crowded_lines * crowd) / (kernel.swap ? plan.cluster_m : plan.cluster_n);
}

double multicast_microseconds(const GemmArguments& arguments, const Plan& plan, int sms, int clusters_at_once,
                              const MulticastCosts& cost, const ChoiceMargins& margin) {
  const Kernel& kernel = *plan.kernel;
  const Shape shape = shape_of(arguments, kernel);
  const int64_t clusters_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m);
  const int64_t clusters_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n);
  const int sharing = plan.cluster_m * plan.cluster_n, cluster = plan.split * sharing;
  const double clusters = static_cast<double>(clusters_m) * clusters_n * shape.batch * plan.parts;
  const double waves = std::ceil(clusters / clusters_at_once);
  const double k_blocks = ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split * plan.parts);

  const double tensor = (kernel.tile_m / 64.0 * (kernel.tile_k / 16.0) * kernel.tile_n / 2.0 + cost.barrier_cycles +
                         (kernel.tile_m == 64 ? cost.one_warpgroup_cycles : 0.0)) /
                        cost.cycles_a_microsecond;
  const double line = 2.0 * kernel.tile_k;
  const double p_lines =
      misplaced(shape, kernel.p_mn_major, shape.rows, kernel.tile_m, cost.unaligned_bytes, cost.unaligned_sectors);
  const double q_lines =
      misplaced(shape, kernel.q_mn_major, shape.columns, kernel.tile_n, cost.unaligned_bytes, cost.unaligned_sectors);
  const int q_extent = loaded_columns(kernel);
  const double asked = line * (p_lines * kernel.tile_m / plan.cluster_n + q_lines * q_extent / plan.cluster_m) /
                       cost.asked_bytes_a_microsecond;
  const double received = line * (kernel.tile_m + q_extent) / cost.received_bytes_a_microsecond;
  const double waiting = (cost.latency + (sharing > 1 ? cost.cluster_latency : 0.0)) / kernel.stages;
  const double loop = waves * k_blocks * slowest({tensor, asked, received, waiting});

  const double weights_again = 1.0 + cost.weights_read_again * ((kernel.swap ? clusters_n : clusters_m) - 1.0);
  const double bytes =
      2.0 * shape.batch *
      ((arguments.n * weights_again + arguments.m) * shape.k + static_cast<double>(arguments.m) * arguments.n);
  const double busy = std::min(clusters * cluster / sms, 1.0);
  const double memory = bytes / cost.memory_bytes_a_microsecond / std::pow(busy, cost.idle_exponent);

  const double panels = kernel.tile_m * kernel.tile_n / 4096.0;
  double time =
      cost.outside + slowest({loop, memory}) + panels * cost.epilogue_a_panel + cost.outside_a_wave * (waves - 1.0);
  if (plan.split > 1) time += panels * cost.exchange_a_panel * (plan.split - 1.0) / plan.split;
  if (plan.parts > 1) {
    time += cost.second_kernel + static_cast<double>(parts_bytes(arguments, plan)) / cost.parts_bytes_a_microsecond;
  }
  const double earned = arguments.m <= 128 ? margin.multicast_few_rows : margin.multicast;
  return earned * time * (plan.split > 1 && waves > 1.0 ? margin.multicast_late_clusters : 1.0);
}

}  // namespace

bool fetches_ahead(const GemmArguments& arguments, const Plan& plan) {
  constexpr int64_t kLeastBytes = 32 << 20, kMostBytes = 256 << 20;  // measured from 34 to 235 MB of weights
  const Kernel& kernel = *plan.kernel;
  const int rows_a_tile = kernel.swap ? kernel.tile_n * plan.cluster_n : kernel.tile_m * plan.cluster_m;
  const int64_t bytes = int64_t{2} * arguments.n * arguments.k;
  return arguments.batch == 1 && arguments.m <= rows_a_tile && bytes >= kLeastBytes && bytes <= kMostBytes;
}

// A k block of a block costs as much as the slowest of three, and a little more where two are close:
//   - the tensor cores (n / 2 cycles for m64 x n x k16) and the barriers around them,
//   - the loads, which are as fast as the bytes in flight divided by their latency,
//   - the card's L2.
// Around the loop lies what does not overlap: the launch, the first loads and the drain, once more for every further
// wave of blocks that take one tile each; a stage, before the first product; the epilogue, and the exchange of a
// split-K cluster. Parts of k cost a second kernel, and their way through L2.
//
// The whole is never faster than memory. Memory is slower with few bytes in flight (of weights above all), and if some
// multiprocessors have more to read than others. Weights that several tiles read apart from each other come from memory
// more than once, in part.
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms, int clusters_at_once,
                             const CostModel& costs) {
  const Kernel& kernel = *plan.kernel;
  const ChoiceMargins& margin = costs.margins;
  if (kernel.multicasts) {
    return multicast_microseconds(arguments, plan, sms, clusters_at_once, costs.multicast, margin);
  }
  const PlanCosts& cost = costs.plans;
  const Shape shape = shape_of(arguments, kernel);
  const int64_t clusters_m = ceil_div(ceil_div(shape.rows, kernel.tile_m), plan.cluster_m);
  const int64_t clusters_n = ceil_div(ceil_div(shape.columns, kernel.tile_n), plan.cluster_n);
  const double tiles_m = clusters_m * plan.cluster_m, tiles_n = clusters_n * plan.cluster_n;
  const int cluster = plan.split * plan.cluster_m * plan.cluster_n;
  const double blocks = tiles_m * tiles_n * shape.batch * plan.split * plan.parts;
  const double k_blocks = ceil_div(ceil_div(shape.k, kernel.tile_k), plan.split * plan.parts);

  const double slots = static_cast<double>(sms) * kernel.blocks_per_sm;
  const double resident = std::min<double>(kernel.blocks_per_sm, std::ceil(blocks / sms));
  const double waves = std::ceil(blocks / cluster / clusters_at_once);

  const double instructions = kernel.tile_m / 64.0 * (kernel.tile_k / 16.0);
  const int q_extent = loaded_columns(kernel);
  const double stage = 2.0 * kernel.tile_k * (kernel.tile_m + q_extent);
  const double ring = kernel.persistent ? kernel.shared_bytes : kernel.stages * (stage + 16.0);
  const double p_lines = misplaced(shape, kernel.p_mn_major, shape.rows, kernel.tile_m, cost.unaligned_l2_bytes,
                                   cost.unaligned_l2_sectors);
  const double q_lines = misplaced(shape, kernel.q_mn_major, shape.columns, kernel.tile_n, cost.unaligned_l2_bytes,
                                   cost.unaligned_l2_sectors);
  // Rows beyond a K-major operand are not loaded (gemm.cu), unless a cluster shares the tile.
  const double p_loaded = !kernel.p_mn_major && plan.cluster_n == 1
                              ? static_cast<double>(std::min<int64_t>(shape.rows, kernel.tile_m))
                              : kernel.tile_m;
  const double q_loaded = !kernel.q_mn_major && plan.cluster_m == 1
                              ? static_cast<double>(std::min<int64_t>(shape.columns, kernel.tile_n))
                              : q_extent;
  const double from_l2 =
      2.0 * kernel.tile_k * (p_lines * p_loaded / plan.cluster_n + q_lines * q_loaded / plan.cluster_m);
  const double tensor = (instructions * kernel.tile_n / 2.0 + cost.barrier_cycles) / cost.cycles_a_microsecond;
  const double loads =
      stage / (resident * ring) * cost.load_latency * (kernel.tile_m == 64 ? cost.narrow_load_latency : 1.0);
  const double l2 = from_l2 * std::min(blocks, slots) / (resident * cost.l2_bytes_a_microsecond);
  const double loop =
      (kernel.persistent ? 1.0 : cost.split_k_loop) * k_blocks *
      slowest({tensor, loads, l2,
               cut_pieces(arguments, plan, std::min(blocks, slots) / (plan.split * plan.parts), cost) / resident});

  const double panels = kernel.tile_m * kernel.tile_n / 4096.0;
  const double after =
      kernel.persistent ? 0.0
                        : panels * (cost.epilogue_a_panel + (plan.split > 1 ? cost.exchange_a_panel * plan.split : 0));

  const double out_bytes = arguments.out_type == ScalarType::float32 ? 4.0 : 2.0;
  const double weights_again =
      cost.weights_read_again * ((kernel.swap ? clusters_n : clusters_m) - 1.0) * arguments.n;  // rows of b
  const double bytes = 2.0 * shape.batch * (static_cast<double>(shape.rows) + shape.columns + weights_again) * shape.k +
                       out_bytes * shape.batch * shape.rows * shape.columns;
  const double filled = std::min(blocks / sms, resident);
  const double in_flight = filled * ring;
  const double weights_in_flight =
      filled * 2.0 * kernel.tile_k * (kernel.swap ? kernel.tile_m : kernel.tile_n) * kernel.stages;
  const double balance = blocks / (std::ceil(blocks / sms) * sms);
  const double bandwidth = cost.memory_bytes_a_microsecond * std::min(1.0, in_flight / cost.saturating_bytes) *
                           std::sqrt(std::min(1.0, weights_in_flight / cost.saturating_weight_bytes)) *
                           std::pow(std::min(1.0, balance / cost.balanced), cost.imbalance_exponent) *
                           (kernel.tile_k < 128 ? cost.short_line_bandwidth : 1.0);
  // MN-major rows that a tile has beyond `a` are loaded as zeros, which takes longer than loading rows. Others are not.
  const int rows_a_tile = kernel.swap ? kernel.tile_n : kernel.tile_m;
  const bool loads_all = kernel.swap ? kernel.q_mn_major : kernel.p_mn_major;
  const double too_high = loads_all && rows_a_tile >= 2 * std::max(arguments.m, 8) ? margin.unused_rows : 1.0;
  const int a_tiles = ceil_div(arguments.m, rows_a_tile);
  const double beyond =
      loads_all && a_tiles > 1 && arguments.m % 8 != 0 ? a_tiles - static_cast<double>(arguments.m) / rows_a_tile : 0.0;
  const double ragged = 1.0 + cost.rows_beyond * beyond / (waves > 1.0 ? 2.0 : 1.0);
  const double memory = (kernel.blocks_per_sm == 2 ? cost.two_block_memory : 1.0) * too_high * bytes / bandwidth;
  // Measured for up to 64 rows; with more, arithmetic takes the time.
  const double ahead = arguments.m <= 64 && fetches_ahead(arguments, plan) ? cost.fetching_ahead : 0.0;
  const double outside = kernel.persistent ? cost.persistent_outside + cost.persistent_epilogue_a_panel * panels
                                           : cost.split_k_outside - ahead + (plan.split > 1 ? cost.exchange : 0.0) +
                                                 cost.outside_a_wave * (waves - 1.0);
  // Of two ping-pong warpgroups one multiplies while the other stores; with one tile a block one has no work.
  const double gain =
      cost.pingpong_turn * loop + cost.pingpong_panel * std::max(panels - cost.pingpong_free_panels, 0.0);
  const double overlapped = kernel.pingpong ? gain * (waves - 1.0) : 0.0;
  const double body = slowest({waves * resident * (ragged * loop + after) - overlapped, ragged * memory + after});
  double alone = outside + cost.outside_a_stage_byte * 2.0 * kernel.tile_k * (p_loaded + q_loaded) + body;
  if (plan.cluster_m * plan.cluster_n > 1) alone *= 1.0 + cost.cluster;
  if (plan.split > 1 && waves > 1.0) alone *= margin.late_clusters;
  if (plan.split == 1 && cluster > 2 && waves > 1.0) alone *= margin.large_clusters;
  if (kernel.pingpong && waves == 1.0) alone *= cost.pingpong_one_turn;
  if (!kernel.persistent && kernel.swap && tiles_n > 1.0) alone *= cost.skinny_tiles;
  if (plan.parts == 1) return alone;
  return margin.parts * (alone + cost.second_kernel +
                         static_cast<double>(parts_bytes(arguments, plan)) / cost.parts_bytes_a_microsecond);
}

}  // namespace cuda_llm_ops::cuda::sm90
