// How thread blocks share the work: all units (chunks of k of all tiles, those of a tile side by side) are cut into one
// run a thread block. A tile is what blocks add sums of: a column block, by a tile of rows where there are several.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda::weight_only {

#ifdef __CUDACC__
#define WEIGHT_ONLY_BOTH __host__ __device__
#else
#define WEIGHT_ONLY_BOTH
#endif

// Made by the functions below.
struct Split {
  int32_t chunks;      // of k, of a tile
  int32_t units;       // of all tiles
  int32_t blocks;      // thread blocks
  int32_t sharers;     // 0, or how many blocks each tile has to itself
  int32_t grain;       // without sharers: units that stay together
  int32_t each, more;  // without sharers: grains of a block; so many blocks at the front have one more

  WEIGHT_ONLY_BOTH int32_t first(int32_t block) const {
    if (sharers > 0) return block / sharers * chunks + block % sharers * chunks / sharers;
    return (block * each + (block < more ? block : more)) * grain;
  }
  // The thread block whose run holds a unit.
  WEIGHT_ONLY_BOTH int32_t block_of(int32_t unit) const {
    if (sharers > 0) {
      const int32_t tile = unit / chunks;
      return tile * sharers + ((unit - tile * chunks + 1) * sharers + chunks - 1) / chunks - 1;
    }
    const int32_t at = unit / grain, of_more = more * (each + 1);
    return at < of_more ? at / (each + 1) : more + (at - of_more) / each;
  }
  // A block that computes a part of a tile only leaves its sums in one of two slots: the first is that of the tile its
  // run begins in.
  WEIGHT_ONLY_BOTH int32_t slot(int32_t block, int32_t tile) const {
    return 2 * block + (first(block) / chunks == tile ? 0 : 1);
  }
};

// Each block has as many units as any other, give or take one; at most `blocks` of them, and one unit at least.
inline Split even_split(int32_t chunks, int32_t tiles, int32_t blocks) {
  const int32_t units = chunks * tiles, used = blocks < units ? blocks : units;
  return {chunks, units, used, 0, 1, units / used, units % used};
}

// Each block has whole tiles.
inline Split whole_split(int32_t chunks, int32_t tiles, int32_t blocks) {
  const int32_t used = blocks < tiles ? blocks : tiles;
  return {chunks, chunks * tiles, used, 0, chunks, tiles / used, tiles % used};
}

// Each tile has `sharers` blocks, or as many as it has chunks.
inline Split shared_split(int32_t chunks, int32_t tiles, int32_t sharers) {
  const int32_t used = sharers < chunks ? sharers : chunks;
  return {chunks, chunks * tiles, tiles * used, used, 1, 0, 0};
}

}  // namespace cuda_llm_ops::cuda::weight_only
