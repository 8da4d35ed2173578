// The order in which the persistent kernel's blocks walk over the tiles of all groups, and how a few-rows cluster splits
// k. Compiled for the host too, by tests/ops/fp8_tiles_host.cpp.
#pragma once

#include "../groups.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// The tiles of all groups, in order; asked for with rising numbers.
struct Tiles {
  int group = -1, before = 0, here = 0;  // the current group, the tiles before it and in it
  GroupRows rows{0, 0};
  int tiles_m = 0;
  int row = 0, n = 0;  // of the tile: its first row, and its number along n in cluster tiles

  template <int TileM>
  __device__ __forceinline__ bool find(const KernelArguments& arguments, int tile) {
    const Fp8GemmArguments& g = arguments.g;
    while (tile >= before + here) {
      if (++group >= g.groups) return false;
      before += here;
      rows = group_rows(g.group_sizes, group, g.capacity, g.m);
      tiles_m = (rows.end - rows.first + TileM - 1) / TileM;
      here = tiles_m * arguments.tiles_n;
    }
    // As in TileCoordinates of ../../gemm/sm90/mainloop.cuh.
    int rest = tile - before;
    const int per_raster = arguments.raster * arguments.tiles_n;
    const int raster = rest / per_raster;
    rest -= raster * per_raster;
    const int first = raster * arguments.raster;
    const int height = min(arguments.raster, tiles_m - first);
    n = rest / height;
    row = rows.first + (first + rest - n * height) * TileM;
    return true;
  }
};

// The stages of k, of all of them, that block `rank` of a cluster of `split` takes.
struct StagesOfRank {
  int first, count;

  __device__ __forceinline__ StagesOfRank(int all, int split, int rank) {
    const int each = (all + split - 1) / split;
    first = min(rank * each, all);
    count = min(each, all - first);
  }
};

}  // namespace cuda_llm_ops::cuda::fp8::sm90
