#include "few_rows_plan.h"

#include <algorithm>
#include <cmath>

#include "../../../arithmetic.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

namespace {

constexpr int32_t kFewestStages = 3;

double fourth_power(double x) { return x * x * x * x; }

// Bytes of weights, scales and zero points.
double weight_bytes(const WeightOnlyArguments& a) {
  const double numbers = static_cast<double>(a.n) * a.k;
  if (a.bits == 8) return numbers;
  return numbers / 2 + numbers / a.group * (a.zeros != nullptr ? 3 : 2);
}

}  // namespace

FewRowsStage few_rows_stage(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan) {
  const int32_t depth = 2 * plan.parts * plan.repeats, columns = plan.tiles * kWeightColumns;
  const int32_t groups = a.bits == 4 ? depth * kWeightDepth / a.group : 0;
  FewRowsStage stage{};
  stage.weights_at = depth * rows * kWeightDepth * 2;
  stage.scales_at = stage.weights_at + plan.tiles * depth * weight_tile_bytes(a.bits);
  stage.zeros_at = ceil_div(stage.scales_at + groups * columns * 2, 128) * 128;
  stage.bytes = ceil_div(stage.zeros_at + (a.zeros != nullptr ? groups * columns : 0), 1024) * 1024;
  return stage;
}

int32_t few_rows_stages(int32_t stage_bytes) { return kFewRowsSharedBytes / (stage_bytes + 16); }

double few_rows_microseconds(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan,
                             int32_t multiprocessors, const FewRowsCosts& cost) {
  // Weights, and the rows of x that blocks read anew: the most that plans of the survey got, from 8192 x 8192 on.
  constexpr double l2_bytes_a_microsecond = 9.2e6;
  // Blocks of a cluster are in one processing cluster, so that not all places can be taken: 57 clusters of four ran
  // together on 132 multiprocessors, 64 did not.
  constexpr double places_of_four = 60.0 / 66.0;
  // Clusters with three stages were not measured.
  const int32_t fewest_stages = plan.cluster == 1 ? kFewestStages : 4;
  const int32_t sharers = plan.parts * plan.cluster, chunks = ceil_div(a.k, plan.parts * 2 * kWeightDepth);
  if (plan.tiles * plan.parts > kFewRowsConsumers || sharers > kMostSharers || plan.cluster > chunks) return 0.0;
  if (few_rows_stages(few_rows_stage(a, rows, plan).bytes) < fewest_stages) return 0.0;

  const int32_t resident = multiprocessors * kFewRowsBlocksPerSm / plan.cluster;
  const int32_t together = std::max(1, plan.cluster == 4 ? static_cast<int32_t>(resident * places_of_four) : resident);
  const int32_t column_blocks = ceil_div(ceil_div(a.n, kWeightColumns), plan.tiles);
  const int32_t rounds = ceil_div(column_blocks, together);
  // Column blocks of the busiest multiprocessor. Blocks that share theirs with none walk, each as far as the others.
  const int32_t most = sharers > 1 ? ceil_div(column_blocks * plan.cluster, multiprocessors)
                                   : ceil_div(ceil_div(column_blocks, rounds), multiprocessors) * rounds;
  const double stages = ceil_div(chunks, plan.cluster), more_rows = rows / 8.0 - 1.0;
  const int32_t warps = plan.tiles * plan.parts;
  const double tile = a.bits == 8
                          ? cost.int8_tile
                          : cost.int4_tile + (a.zeros != nullptr ? cost.int4_zeros : 0.0) + more_rows * cost.int4_rows;
  const double tiles = most * stages * warps * 2 * tile;
  const double block = rounds * stages * (cost.stage + warps * cost.stage_warp + more_rows * cost.stage_rows);
  const double weights = weight_bytes(a), x = 2.0 * column_blocks * a.k * a.m;
  const double memory = weights / cost.memory_bytes_a_microsecond;
  // The longest takes nearly all, and a little more where others are close.
  const double slowest = std::sqrt(std::sqrt(fourth_power(tiles) + fourth_power(block) + fourth_power(memory)));
  const double meet = plan.cluster == 1 ? 0.0 : plan.cluster == 2 ? cost.two_blocks_meet : cost.four_blocks_meet;
  return cost.outside + std::max(slowest, (weights + x) / l2_bytes_a_microsecond) + meet +
         (sharers > 1 ? cost.late_round * (rounds - 1) : 0.0);
}

FewRowsPlan few_rows_plan(const WeightOnlyArguments& a, int32_t rows, int32_t multiprocessors) {
  FewRowsPlan best{1, 1, 1};
  double least = few_rows_microseconds(a, rows, best, multiprocessors);
  for (const int32_t parts : {1, 2, 4}) {
    for (const int32_t cluster : {1, 2, 4}) {
      for (int32_t tiles = kFewRowsConsumers / parts; tiles >= 1; --tiles) {
        const double time = few_rows_microseconds(a, rows, {tiles, parts, cluster}, multiprocessors);
        if (time > 0.0 && time < least) best = {tiles, parts, cluster}, least = time;
      }
    }
  }
  // Twice the k for each warp of a stage: half as many barriers, and 2 KB of each packed tile side by side. It pays where
  // warps have whole columns. There are kernels for 8 rows.
  FewRowsPlan twice = best;
  twice.repeats = 2;
  const bool whole_columns = best.parts * best.cluster == 1 && best.tiles >= 7;
  const bool room = few_rows_stages(few_rows_stage(a, rows, twice).bytes) >= kFewestStages;
  return rows == 8 && a.k > kWeightDepth * 2 && whole_columns && room ? twice : best;
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
