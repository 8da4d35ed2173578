// How the kernel of few rows shares a product, by a model of its time. No CUDA: tests compile it for the host.
#pragma once

#include <algorithm>

#include "../../../arithmetic.h"
#include "kernels.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

// Where the parts of a stage lie. TMA writes to multiples of 128 bytes, and panels of x to multiples of 1024.
struct FewRowsStage {
  int32_t weights_at, scales_at, zeros_at, bytes;
};

inline FewRowsStage few_rows_stage(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan) {
  const int32_t depth = 2 * plan.parts, columns = plan.tiles * kWeightColumns;
  const int32_t groups = a.bits == 4 ? depth * kWeightDepth / a.group : 0;
  FewRowsStage stage{};
  stage.weights_at = depth * rows * kWeightDepth * 2;
  stage.scales_at = stage.weights_at + plan.tiles * depth * weight_tile_bytes(a.bits);
  stage.zeros_at = ceil_div(stage.scales_at + groups * columns * 2, 128) * 128;
  stage.bytes = ceil_div(stage.zeros_at + (a.zeros != nullptr ? groups * columns : 0), 1024) * 1024;
  return stage;
}

inline int32_t few_rows_stages(int32_t stage_bytes) { return kFewRowsSharedBytes / (stage_bytes + 16); }

// The time of a plan in microseconds, or 0 if it is not possible. Bytes of a block are those of its weights, and the
// rows of x that every block reads anew.
inline double few_rows_microseconds(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan,
                                    int32_t multiprocessors) {
  constexpr double memory_bytes_a_microsecond = 4.1e6, l2_bytes_a_microsecond = 6.3e6;  // of all blocks
  constexpr double stage = 0.35;  // that a warp needs for its part of one
  constexpr double parts_meet = 0.3;
  constexpr double begin = 1.5;  // of a block that shares its columns, in each round but the first
  constexpr int32_t fewest_stages = 4;
  const int32_t sharers = plan.parts * plan.cluster, chunks = ceil_div(a.k, plan.parts * 2 * kWeightDepth);
  if (plan.tiles * plan.parts > few_rows_consumers(rows) || sharers > kMostSharers || plan.cluster > chunks) return 0.0;
  if (few_rows_stages(few_rows_stage(a, rows, plan).bytes) < fewest_stages) return 0.0;
  const int32_t blocks = multiprocessors * kFewRowsBlocksPerSm;
  const int32_t column_blocks = ceil_div(ceil_div(a.n, kWeightColumns), plan.tiles);
  const int32_t rounds = ceil_div(column_blocks, blocks / plan.cluster);
  const double depth = plan.parts * 2 * kWeightDepth;  // of a stage
  const double weights = plan.tiles * kWeightColumns * depth * a.bits / 8, x = depth * 2 * a.m;
  const double loads = blocks * std::max(weights / memory_bytes_a_microsecond, (weights + x) / l2_bytes_a_microsecond);
  const double blocks_meet = plan.cluster == 1 ? 0.0 : plan.cluster == 2 ? 0.5 : 2.0;
  return rounds * ceil_div(chunks, plan.cluster) * std::max(loads, stage) + blocks_meet +
         (plan.parts > 1 ? parts_meet : 0.0) + (sharers > 1 ? begin * (rounds - 1) : 0.0);
}

// The plan of the least time. A block of one tile is always possible.
inline FewRowsPlan few_rows_plan(const WeightOnlyArguments& a, int32_t rows, int32_t multiprocessors) {
  FewRowsPlan best{1, 1, 1};
  double least = few_rows_microseconds(a, rows, best, multiprocessors);
  for (const int32_t parts : {1, 2, 4}) {
    for (const int32_t cluster : {1, 2, 4}) {
      for (int32_t tiles = few_rows_consumers(rows); tiles >= 1; --tiles) {
        const double time = few_rows_microseconds(a, rows, {tiles, parts, cluster}, multiprocessors);
        if (time > 0.0 && time < least) best = {tiles, parts, cluster}, least = time;
      }
    }
  }
  return best;
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
