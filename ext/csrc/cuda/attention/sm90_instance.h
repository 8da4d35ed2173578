// What the host knows of the Hopper flash kernels: their parameters, and one entry for each compiled kernel.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "../../kernels.h"
#include "launch.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// The order in which the persistent blocks take the query tiles.
enum class Schedule : int32_t {
  linear,  // equal tiles: those of a head one after another
  chunks,  // the same, joined: each block takes a chunk of a head at a time, in tiles of all warpgroups and of one less
  snake,   // causal: longest first over a section of heads, every other round of the blocks in reverse
  pairs,   // causal: a long and a short tile of one head together, all pairs of equal length; the last heads' tiles in
           // the snake's order, where the instance can
  even,   // whole tiles, as many for each block; before them an equal range of the keys of the tiles left over
};

// A tensor that TMA cannot describe.
struct Rows {
  const void* pointer;
  int64_t batch, head, seq;  // strides in elements
  uint64_t end;              // address after the last element
};

// Division of numbers below 2^31 by one that the host knows: the textbook's multiplication by a reciprocal of 33 bits.
struct Division {
  uint32_t multiplier;
  int32_t shift;

  static Division by(uint32_t divisor) {
    int shift = 0;
    while ((uint64_t{1} << shift) < divisor) ++shift;
    return {static_cast<uint32_t>((((uint64_t{1} << shift) - divisor) << 32) / divisor + 1), shift};
  }
#ifdef __CUDACC__
  __device__ __forceinline__ uint32_t divide(uint32_t value) const {
    return (__umulhi(value, multiplier) + value) >> shift;
  }
#endif
};

// How a kernel of packed tiles works (sm90_pack.cuh). Its counters: first the next ticket, then the warps that are done,
// then those of the tiles.
constexpr int packing_counters = 2;

struct Packing {
  void* workspace;                    // the tiles of K and V of every head
  uint32_t* counters;                 // zeros
  int32_t used_counters;
  int32_t kv_heads, batch_heads;      // of all the batch, of one of it
  int32_t blocks;                     // of keys of a head
  int32_t section, last_section;      // kv heads whose tiles are packed together; the number of the last section
  uint32_t section_tickets, tickets;  // of a section, of all
  uint32_t half, last_half;           // tickets of one block's K, or V, of all heads of a section, of the last section
  int32_t tile_shift;                 // log2 of the tickets of a tile of K or V
  int32_t first_tickets;              // that a thread block takes before its first tile: an even number
  int32_t counter_heads;              // heads that one counter counts; if 1, ..
  int32_t counter_shift;              // .. each counts 2^shift tiles ..
  int32_t head_counters;              // .. and a head has so many
  Division by_section, by_half, by_last_half, by_batch;
};

// Schedule::even (sm90_even.cuh): what whole tiles, as many for each thread block, leave over. Of these tiles, those of all
// warpgroups are for the first thread blocks, the others for the rest. Either kind is numbered, and so are its blocks of
// keys, one tile's after another's: a thread block's range is `share` of these.
constexpr int parts_of_a_range = 2;  // tiles that it may touch
constexpr int most_ranges = 8;       // of a tile

struct Even {
  struct Ranges {
    int32_t tiles, share;
    Division by_share;
  };
  float* sums;          // what each range leaves of each tile it touches
  uint32_t* counters;   // zeros; of each warp of each tile left over
  int32_t rounds;       // whole tiles of a thread block
  int32_t whole;        // of all thread blocks
  int32_t tall;         // tiles of all warpgroups of a head
  int32_t tall_ranges;  // thread blocks
  int32_t key_blocks;   // of a tile
  Ranges of_tall, of_small;
  Division by_tall, by_key_blocks;
};

struct Parameters {
  CUtensorMap q, k, v;                   // 4-D: head_dim, sequence, head, batch
  Rows q_rows, k_rows, v_rows;           // instead, for a kernel that packs
  Packing packing;
  void* out;
  int64_t out_batch, out_head, out_seq;  // strides in elements
  int32_t seq_q, seq_kv, head_dim;
  int32_t heads, group;                  // query heads; query heads of one kv head
  int32_t m_tiles, batch_heads;          // query tiles of a head; heads of all the batch
  Division by_heads, by_visits;          // packed, joined: visits are the grid's to a head, m_tiles, pairs or chunks
  int32_t section;                       // heads of a section of Schedule::snake
  int32_t pair_rounds, tail_head;        // of Schedule::pairs: rounds of the grid before the tail, and its first head
  Division by_tail;                      // by the number of its heads
  int32_t chunks, chunk_units;           // of Schedule::chunks: chunks of a head; 64s of queries of a chunk
  int32_t chunk_tall, chunk_tiles;       // its tiles of all warpgroups, which come first; all its tiles
  Division by_chunk_tiles;
  Schedule schedule;
  float scale_log2;                      // scale * log2(e), above 0
  bool causal;
  Even even;                             // of Schedule::even
};

// What a product of 64 queries with one key takes, and what a tile takes besides in the same unit: measured, and only
// to be compared among the instances of one head_dim.
struct Cost {
  double full = 1.0, causal = 1.0;
  double tile = 440.0;
  double misaligned = 1.0;  // factor where rows of K and V start between sectors of 32 bytes
  double causal_tile = 0;   // for `tile` where the problem is causal, if not 0
};

struct Instance {
  ScalarType type;
  int head_dim;            // computes any multiple of 8 (if packed, any) up to this
  int block_m, block_n;    // queries and keys of a tile (a cluster's, of `cluster` blocks)
  int cluster;
  bool packed;             // for rows that TMA cannot describe: by way of a workspace
  bool split_keys;         // the warpgroups share the queries of a tile and split its keys
  bool joined;             // no gap between tiles; takes Schedule::chunks, and a tail of Schedule::pairs
  bool even;               // takes Schedule::even, and no other
  Cost cost;
  int least_head_dim;      // packed: computes none below this
  int packed_tile_bytes;   // packed: of a tile of K and one of V
  int part_bytes;          // even: that a range leaves of a tile
  attention::Kernel kernel;
};

// The instances for one head_dim, a file each; `count` of them.
struct Family {
  const Instance* instances;
  int count;
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
