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

// The plan of the least time. Bytes of a block: those of its weights, and the rows of x that every block reads anew.
inline FewRowsPlan few_rows_plan(const WeightOnlyArguments& a, int32_t rows, int32_t multiprocessors) {
  constexpr double memory_bytes_a_microsecond = 4.1e6, l2_bytes_a_microsecond = 6.3e6;  // of all blocks
  constexpr double stage = 0.35;  // microseconds that a warp needs for its part of one
  constexpr int32_t fewest_stages = 4;
  const int32_t blocks = multiprocessors * kFewRowsBlocksPerSm, column_tiles = ceil_div(a.n, kWeightColumns);
  FewRowsPlan best{};
  double least = 0.0;
  for (const int32_t parts : {1, 2, 4}) {
    const int32_t chunks = ceil_div(a.k, parts * 2 * kWeightDepth);
    if (parts > 1 && chunks == 1) break;
    for (int32_t tiles = few_rows_consumers(rows) / parts; tiles >= 1; --tiles) {
      if (few_rows_stages(few_rows_stage(a, rows, {tiles, parts, 1}).bytes) < fewest_stages) continue;
      // Of 128 of k in microseconds, if all blocks are busy.
      const double weights = 2.0 * tiles * weight_tile_bytes(a.bits), x = 2.0 * a.m * 2 * kWeightDepth;
      const double each =
          blocks * std::max(weights / memory_bytes_a_microsecond, (weights + x) / l2_bytes_a_microsecond);
      for (const int32_t cluster : {1, 2, 4}) {
        if (cluster > chunks || cluster * parts > kMostSharers) break;
        const int32_t rounds = ceil_div(ceil_div(column_tiles, tiles), blocks / cluster);
        const double exchange = (cluster == 1 ? 0.0 : cluster == 2 ? 0.5 : 2.0) + (parts > 1 ? 0.3 : 0.0);
        // A block that shares its columns begins anew for each round.
        const double again = parts * cluster > 1 ? 1.5 * (rounds - 1) : 0.0;
        const double time = rounds * ceil_div(chunks, cluster) * std::max(parts * each, stage) + exchange + again;
        if (best.tiles == 0 || time < least) best = {tiles, parts, cluster}, least = time;
      }
    }
  }
  return best;
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
