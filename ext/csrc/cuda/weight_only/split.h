// How thread blocks share the work: all units (chunks of k of all column blocks, those of a column block side by side)
// are cut into one run a thread block, so that each block has as much to read as any other, give or take a unit.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda::weight_only {

#ifdef __CUDACC__
#define WEIGHT_ONLY_BOTH __host__ __device__
#else
#define WEIGHT_ONLY_BOTH
#endif

struct Split {
  int32_t chunks;  // of k, of a column block
  int32_t units;   // of all column blocks
  int32_t blocks;  // thread blocks; at most as many as units

  WEIGHT_ONLY_BOTH int32_t first(int32_t block) const { return static_cast<int32_t>(int64_t{block} * units / blocks); }
  // The thread block whose run holds a unit.
  WEIGHT_ONLY_BOTH int32_t block_of(int32_t unit) const {
    return static_cast<int32_t>((int64_t{unit + 1} * blocks + units - 1) / units) - 1;
  }
  // A block that computes a part of a column block only leaves its sums in one of two slots: the first is that of the
  // column block its run begins in.
  WEIGHT_ONLY_BOTH int32_t slot(int32_t block, int32_t column_block) const {
    return 2 * block + (first(block) / chunks == column_block ? 0 : 1);
  }
};

}  // namespace cuda_llm_ops::cuda::weight_only
