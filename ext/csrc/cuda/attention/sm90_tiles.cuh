// Which query tiles a thread block of sm90_flash.cuh takes, in which order, and how many blocks of keys a tile sees.
#pragma once

#include "sm90_instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

struct Tile {
  int m, head, batch;
  int row, units;  // of a joined kernel: its first query, and of how many warpgroups it has queries
  bool valid;
  // Of Schedule::even: its number among the tiles left over, if it is one (else -1), and the blocks of keys from the first
  // to before the last that this thread block has of it.
  int left, first_block, end_block;
};

// The i-th tile of this block, or of its cluster: then of twice the rows.
template <typename C>
__device__ __forceinline__ Tile tile_at(const Parameters& p, int i) {
  constexpr bool multiplies = C::packed || C::joined;
  const int blocks = gridDim.x / C::cluster, block = blockIdx.x / C::cluster;
  int row = -1, units = C::q_tiles, left = -1, first_block = 0, end_block = 0;
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
  } else if (C::joined && p.schedule == Schedule::chunks) {
    const int round = p.by_chunk_tiles.divide(i), tile = i - round * p.chunk_tiles, chunk = round * blocks + block;
    batch_head = p.by_visits.divide(chunk);
    valid = batch_head < p.batch_heads;
    const int small = max(0, tile - p.chunk_tall);
    row = ((chunk - batch_head * p.chunks) * p.chunk_units + tile * C::q_tiles - small) * 64;
    units = tile < p.chunk_tall ? C::q_tiles : C::q_tiles - 1;
    m = row < p.seq_q ? 0 : -1;
  } else if (C::even && p.schedule == Schedule::even) {
    const Even& e = p.even;
    int tall = (i - e.parts) * blocks + block;  // among the tiles of all warpgroups
    m = 0;
    valid = i < e.parts + e.rounds;
#ifdef EVEN_LAST
    valid = i < e.parts + e.rounds;
    if (i < e.rounds) { tall = i * blocks + block; }
    const int ii = i; i -= e.rounds;
    if (i >= 0) {
#else
    if (i < e.parts) {
#endif
      const int first = block * e.share, end = min(first + e.share, e.left * e.key_blocks);
      left = e.by_key_blocks.divide(first) + i;
      first_block = max(0, first - left * e.key_blocks);
      end_block = min(e.key_blocks, end - left * e.key_blocks);
      if (first_block >= end_block) m = -1;
      tall = e.rounds * blocks + left;
    }
    batch_head = left < e.left_tall ? e.by_tall.divide(tall) : left - e.left_tall;
    row = (left < e.left_tall ? tall - batch_head * e.tall : e.tall) * C::block_m;
  } else if (C::joined && i >= 2 * p.pair_rounds) {
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
    // An odd middle tile is its own partner: the second visit is marked by a row past every limit.
    if (i % 2 == 1 && m == p.m_tiles - 1 - from_last) m = -1;
  }
  Tile tile;
  tile.m = m;
  if constexpr (C::joined) {
    tile.row = row >= 0 ? row : m * C::block_m;
    tile.units = min(units, (p.seq_q - tile.row + 63) / 64);
  }
  if constexpr (C::even) {
    tile.left = left;
    tile.first_block = first_block;
    tile.end_block = end_block;
  }
  tile.batch = multiplies ? p.by_heads.divide(batch_head) : batch_head / p.heads;
  tile.head = batch_head - tile.batch * p.heads;
  tile.valid = valid;
  return tile;
}

// Blocks of keys that rows [.., row_end) of the queries see.
template <int BlockN>
__device__ __forceinline__ int key_blocks(const Parameters& p, int row_end) {
  const int keys = p.causal ? min(p.seq_kv, row_end) : p.seq_kv;
  return (keys + BlockN - 1) / BlockN;
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
