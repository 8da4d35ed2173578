// What host and device share about the Hopper flash kernels (plain, cross-tile, stream-K, realigned rows): the kernels'
// parameters, and the facts of one compiled kernel. The kernels with AttentionOptions have their own in varlen.h.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "../../../kernels.h"
#include "../launch.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// The order in which the persistent thread blocks take the query tiles (schedule.cuh).
enum class Schedule : int32_t {
  linear,    // all tiles cost the same: the tiles of a head one after another
  slices,    // the same for cross-tile kernels: a thread block takes one slice of a head at a time
  snake,     // causal: longest tiles first over a section of heads; every other round of the grid runs backwards
  pairs,     // causal: a long and a short tile of one head together, so that all pairs cost the same; the tiles of the
             // last heads in the snake's order, if the instance can
  stream_k,  // whole tiles, as many for each thread block; before them an equal range of the keys of the other tiles
};

// A tensor that TMA cannot describe.
struct Rows {
  const void* pointer;
  int64_t batch, head, seq;  // strides in elements
  uint64_t end;              // address after the last element
};

// Division of numbers below 2^31 by a divisor that the host knows: the textbook's multiplication by a 33-bit
// reciprocal.
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

// Parameters of a kernel for realigned rows (realigned_tiles.cuh). Its counters: first the next ticket, then the number
// of warps that are done, then one for each tile or group of tiles.
constexpr int kRealignmentCounters = 2;

struct Realignment {
  void* workspace;     // the realigned tiles of K and V of every head
  uint32_t* counters;  // all zero at the launch
  int32_t used_counters;
  int32_t kv_heads, batch_heads;      // of the whole batch; of one element of the batch
  int32_t blocks;                     // key blocks of a head
  int32_t section, last_section;      // kv heads that are realigned together; number of the last section
  uint32_t section_tickets, tickets;  // of a section; of the launch
  uint32_t half, last_half;           // tickets of K (or V) of one key block of all heads of a section; of the last one
  int32_t tile_shift;                 // log2 of the tickets of one tile of K or V
  int32_t first_tickets;              // tickets that a thread block takes before its first tile: an even number
  int32_t counter_heads;              // heads that one counter counts; if that is 1, ...
  int32_t counter_shift;              // ... a counter counts 2^shift tiles, ...
  int32_t head_counters;              // ... and a head has this many counters
  Division by_section, by_half, by_last_half, by_batch;
};

// Parameters of Schedule::stream_k (stream_k.cuh). Every thread block first takes the same number of whole tiles. The
// remaining tiles are of two kinds: tall ones with rows for all warpgroups, and small ones with fewer. The first thread
// blocks share the tall ones, the others the small ones. The key blocks of all tiles of one kind are numbered one tile
// after another; a thread block's range is `share` of them.
constexpr int kPartsOfARange = 2;  // tiles that a range can touch
constexpr int kMostRanges = 8;     // ranges that can share a tile

struct StreamK {
  struct Ranges {
    int32_t tiles, share;
    Division by_share;
  };
  float* sums;          // the partial result of every part of every range
  uint32_t* counters;   // all zero at the launch; one for each warp of each shared tile
  int32_t rounds;       // whole tiles of one thread block
  int32_t whole;        // whole tiles of all thread blocks
  int32_t tall;         // tall tiles of a head
  int32_t tall_ranges;  // thread blocks that share tall tiles
  int32_t key_blocks;   // of a tile
  Ranges of_tall, of_small;
  Division by_tall, by_key_blocks;
};

struct Parameters {
  CUtensorMap q, k, v;          // 4-D: head_dim, sequence, head, batch
  Rows q_rows, k_rows, v_rows;  // instead of the maps, for a kernel that realigns rows
  Realignment realignment;
  void* out;
  int64_t out_batch, out_head, out_seq;  // strides in elements
  int32_t seq_q, seq_kv, head_dim;
  int32_t heads, group;             // query heads; query heads of one kv head
  int32_t m_tiles, batch_heads;     // query tiles of a head; heads of the whole batch
  Division by_heads, by_visits;     // realigned and cross-tile: visits of a head are its m_tiles, pairs or slices
  int32_t section;                  // heads of a section of Schedule::snake
  int32_t pair_rounds, tail_head;   // Schedule::pairs: rounds of the grid before the tail, and the tail's first head
  Division by_tail;                 // by the number of heads in the tail
  int32_t slices, slice_units;      // Schedule::slices: slices of a head; 64s of queries of a slice
  int32_t slice_tall, slice_tiles;  // tiles of a slice for all warpgroups, which come first; all tiles of a slice
  Division by_slice_tiles;
  Schedule schedule;
  float scale_log2;  // scale * log2(e), above 0
  bool causal;
  StreamK stream_k;
  int32_t value_dim;  // columns of V and of the output; at the end, where it moves no other
};

// Measured cost of an instance. The unit is the product of 64 queries with one key, so costs compare only between
// instances of the same head_dim.
struct Cost {
  double full = 1.0;        // of a product without a mask
  double causal = 1.0;      // of a product with a causal mask
  double tile = 440.0;      // of a tile, besides its products
  double misaligned = 1.0;  // factor for rows of K and V that do not begin on sectors of 32 bytes
  double causal_tile = 0;   // replaces `tile` for causal problems, if not 0
};

struct Instance {
  ScalarType type;
  int head_dim;          // the largest; takes any multiple of 8 up to it, or, if realigned, any number
  int least_head_dim;    // the smallest
  int value_dim;         // if less than head_dim: only for a V with fewer columns than Q and K, at most this many
  int block_m, block_n;  // queries (of all thread blocks of a cluster) and keys of a tile
  int cluster;           // thread blocks that share K and V by multicast
  bool realigned;        // for rows that TMA cannot describe: by way of a workspace
  bool split_keys;       // the warpgroups share the queries of a tile and split its keys
  bool cross_tile;       // no gap between tiles; can take Schedule::slices, and a tail of Schedule::pairs
  bool stream_k;         // takes Schedule::stream_k, and no other
  Cost cost;
  int realigned_tile_bytes;  // realigned: of a tile of K and one of V
  int part_bytes;            // stream-K: of the partial result of a tile
  attention::Kernel kernel;
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
