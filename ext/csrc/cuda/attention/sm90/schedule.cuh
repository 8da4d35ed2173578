// Which query tiles a thread block takes, in which order, and how many key blocks a tile sees. schedule.cu is the host
// side.
#pragma once

#include "instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

struct Tile {
  int m, head, batch;
  int row, units;  // cross-tile: its first query, and the number of warpgroups that have queries of it
  bool valid;
  int first_block, end_block;  // Schedule::stream_k: the key blocks that this thread block has of it
};

// Schedule::stream_k: the part of a shared tile that belongs to a thread block's range.
struct Part {
  bool small;  // the tile has rows for fewer than all warpgroups
  int tile;    // its number among the tiles of its kind
  int first_block, end_block;

  __device__ __forceinline__ bool any() const { return first_block < end_block; }
  __device__ __forceinline__ int left(const StreamK& e) const { return small ? e.of_tall.tiles + tile : tile; }
};

__device__ __forceinline__ Part part_at(const StreamK& e, int block, int i) {
  Part part;
  part.small = block >= e.tall_ranges;
  const int share = part.small ? e.of_small.share : e.of_tall.share,
            tiles = part.small ? e.of_small.tiles : e.of_tall.tiles;
  const int first = (block - (part.small ? e.tall_ranges : 0)) * share;
  part.tile = e.by_key_blocks.divide(first) + i;
  part.first_block = max(0, first - part.tile * e.key_blocks);
  part.end_block = min(e.key_blocks, min(first + share, tiles * e.key_blocks) - part.tile * e.key_blocks);
  return part;
}

// The thread blocks that share a tile: `count` consecutive ones. It is part number `part` of the first of them, and the
// first part of all others.
struct Sharers {
  int first, part, count;
};

__device__ __forceinline__ Sharers sharers_of(const StreamK& e, const Part& of_tile) {
  const auto range_of = [&](int key_block) {
    return static_cast<int>(of_tile.small ? e.of_small.by_share.divide(key_block)
                                          : e.of_tall.by_share.divide(key_block));
  };
  const int first_block = of_tile.tile * e.key_blocks, first = range_of(first_block);
  const int last = range_of(first_block + e.key_blocks - 1);
  const int part = first * (of_tile.small ? e.of_small.share : e.of_tall.share) < first_block ? 1 : 0;
  return {first + (of_tile.small ? e.tall_ranges : 0), part, last - first + 1};
}

// Schedule::stream_k: the i-th tile of this thread block, and its key blocks.
template <typename C>
__device__ __forceinline__ Tile stream_k_tile_at(const Parameters& p, int i) {
  const StreamK& e = p.stream_k;
  Tile tile;
  int tall, batch_head = -1;  // its number among the tiles of all warpgroups
  tile.m = 0;
  tile.valid = i < kPartsOfARange + e.rounds;
  if (i < kPartsOfARange) {
    const Part part = part_at(e, blockIdx.x, i);
    tile.first_block = part.first_block;
    tile.end_block = part.end_block;
    tall = e.whole + part.tile;
    if (part.small) batch_head = part.tile;
    if (!part.any()) tile.m = -1;
  } else {
    tile.first_block = 0;
    tile.end_block = e.key_blocks;
    tall = (i - kPartsOfARange) * gridDim.x + blockIdx.x;
  }
  const bool small = batch_head >= 0;
  if (!small) batch_head = e.by_tall.divide(tall);
  tile.row = (small ? e.tall : tall - batch_head * e.tall) * C::block_m;
  tile.units = min(C::q_tiles, (p.seq_q - tile.row + 63) / 64);
  tile.batch = p.by_heads.divide(batch_head);
  tile.head = batch_head - tile.batch * p.heads;
  return tile;
}

// The i-th tile of this thread block. In a cluster, it is the cluster's and has twice the rows.
template <typename C>
__device__ __forceinline__ Tile tile_at(const Parameters& p, int i) {
  if constexpr (C::stream_k) return stream_k_tile_at<C>(p, i);
  constexpr bool multiplies = C::realigned || C::cross_tile;
  const int blocks = gridDim.x / C::cluster, block = blockIdx.x / C::cluster;
  int row = -1, units = C::q_tiles;
  int m, batch_head;
  bool valid;
  if (p.schedule == Schedule::linear) {
    const int index = i * blocks + block;
    batch_head = multiplies ? p.by_visits.divide(index) : index / p.m_tiles;
    m = index - batch_head * p.m_tiles;
    valid = batch_head < p.batch_heads;
  } else if (p.schedule == Schedule::snake) {
    const int index = i * blocks + (i % 2 == 0 ? block : blocks - 1 - block);
    const int per_section = p.section * p.m_tiles;
    const int section = index / per_section;
    const int first_head = section * p.section;
    const int heads = min(p.section, p.batch_heads - first_head);
    valid = heads > 0;
    const int rest = index - section * per_section;
    const int from_last = valid ? rest / heads : 0;
    m = p.m_tiles - 1 - from_last;
    batch_head = first_head + rest - from_last * heads;
    valid = valid && m >= 0;
  } else if (C::cross_tile && p.schedule == Schedule::slices) {
    const int round = p.by_slice_tiles.divide(i), tile = i - round * p.slice_tiles, slice = round * blocks + block;
    batch_head = p.by_visits.divide(slice);
    valid = batch_head < p.batch_heads;
    const int small = max(0, tile - p.slice_tall);
    row = ((slice - batch_head * p.slices) * p.slice_units + tile * C::q_tiles - small) * 64;
    units = tile < p.slice_tall ? C::q_tiles : C::q_tiles - 1;
    m = row < p.seq_q ? 0 : -1;
  } else if (C::cross_tile && i >= 2 * p.pair_rounds) {
    i -= 2 * p.pair_rounds;
    const int index = i * blocks + (i % 2 == 0 ? block : blocks - 1 - block);
    const int from_last = p.by_tail.divide(index);
    m = p.m_tiles - 1 - from_last;
    batch_head = p.tail_head + index - from_last * (p.batch_heads - p.tail_head);
    valid = m >= 0;
  } else {
    const int pairs = (p.m_tiles + 1) / 2;
    const int index = i / 2 * blocks + block;
    batch_head = multiplies ? p.by_visits.divide(index) : index / pairs;
    const int from_last = index - batch_head * pairs;
    m = i % 2 == 0 ? p.m_tiles - 1 - from_last : from_last;
    valid = batch_head < p.batch_heads;
    // An odd middle tile is its own partner. The second visit is marked by m = -1.
    if (i % 2 == 1 && m == p.m_tiles - 1 - from_last) m = -1;
  }
  Tile tile;
  tile.m = m;
  if constexpr (C::cross_tile) {
    tile.row = row >= 0 ? row : m * C::block_m;
    tile.units = min(units, (p.seq_q - tile.row + 63) / 64);
  }
  tile.batch = multiplies ? p.by_heads.divide(batch_head) : batch_head / p.heads;
  tile.head = batch_head - tile.batch * p.heads;
  tile.valid = valid;
  return tile;
}

// The number of key blocks that query rows before row_end see.
template <int BlockN>
__device__ __forceinline__ int key_blocks(const Parameters& p, int row_end) {
  const int keys = p.causal ? min(p.seq_kv, row_end) : p.seq_kv;
  return (keys + BlockN - 1) / BlockN;
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
