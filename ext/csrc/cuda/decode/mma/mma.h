// The parameters of the tensor-core decode kernels, and the compiled instances.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "../../../decode.h"

namespace cuda_llm_ops::cuda::decode {

constexpr int kRows = 16;          // of a tile: query heads of a group, times queries
constexpr int kFewRows = 8;        // of the tile that is better where there are no more
constexpr int kTileKeys = 16;      // of a warp's tile
constexpr int kWideKeys = 64;      // of a warpgroup's tile (wide.cuh)
constexpr int kWideRows = 64;      // of a unit there
constexpr int kProducers = 2;      // warps that load by TMA
constexpr int kMaxCluster = 8;     // larger clusters need the driver's permission
constexpr int kMaxBatch = 1024;    // of one launch: the lists of lengths lie in shared memory
constexpr int kFewSequences = 64;  // up to this many, one warp makes the lists by itself

struct MmaParameters {
  CUtensorMap k_map, v_map;  // TMA alone: (head_dim, slot, kv head, page)
  const void* q;
  const void* k;
  const void* v;
  void* out;
  const int32_t* cache_lens;
  const int32_t* block_table;
  float* partial;  // (2 * blocks, rows, head_dim of the instance)
  float2*
      partial_stats;   // (2 * blocks, rows of a unit, at least kRows): largest score in units of log2, sum of weights
  uint32_t* counters;  // (blocks, warps), all 0 before and after
  HeadStrides q_stride;
  CacheStrides k_stride, v_stride;
  int64_t lens_stride, table_stride_batch, table_stride_page;
  uint64_t policy;  // L2 eviction of the cache's lines
  int batch, kv_heads, unit_heads, group, seq_q, head_dim, capacity, page_size, num_pages;
  int group_rows, row_blocks, rows;     // of a kv head; their blocks; of the largest block
  int box_rows, box_shift, box_panels;  // TMA alone: keys of a copy; log2 of the copies of a block; copies side by side
  int page_boxes, table_pages;          // TMA alone: copies of a page; pages of a sequence
  float scale_log2;
  uint32_t zero;  // always 0; the compiler cannot know that (consume() in tma_ring.cuh needs such a number)
  int prefetch;   // TMA alone: MmaPlan's
  int by_head;    // likewise
};

// Rows of a unit, at most: a tile of few rows has those of a group's heads.
__host__ __device__ constexpr int rows_of_unit(int tile_rows) { return tile_rows < kRows ? kRows : tile_rows; }

// Warps that load in cluster.cuh. Two where a block is several copies: only then is it worth a second look at pages.
__host__ __device__ inline int cluster_producers(const MmaParameters& p) {
  return p.block_table != nullptr && p.box_shift > 0 ? kProducers : 1;
}

enum class MmaKind {
  tma,       // tma.cuh
  cluster,   // cluster.cuh
  cp_async,  // cp_async.cuh
};

struct MmaInstance {
  const void* address;
  const char* name;
  ScalarType type;
  int head_dim, warps;  // warps that share a block of keys
  int block_keys;
  int groups;     // groups of `warps` warps, which take units in turn
  int tile_rows;  // of a unit, at most
  MmaKind kind;
  int (*shared_bytes)(int rows, int batch);
  bool by_head = false;  // the order of the list of all blocks (worker.cuh)
  bool wide = false;     // warpgroups compute the rows (wide.cuh)
  int per_sm = 2;        // thread blocks that registers leave room for on a multiprocessor, at most 2

  int unit_rows() const { return rows_of_unit(tile_rows); }
  bool tma() const { return kind != MmaKind::cp_async; }  // with warps more, which load
  // At most: a cluster may do with one that loads.
  int threads() const { return (groups * warps + (tma() ? kProducers : 0)) * 32; }
};

using MmaInstances = std::array<MmaInstance, 21>;
const MmaInstances& mma_float16();
const MmaInstances& mma_bfloat16();

// How a call is computed.
struct MmaPlan {
  const MmaInstance* instance = nullptr;
  int blocks = 0;    // of the grid
  int cluster = 1;   // thread blocks of a cluster
  int prefetch = 0;  // blocks of keys that a thread block asks L2 for while the grid before it ends
  // If not 0, the list of all blocks goes head after head instead of sequence after sequence. Then `by_head`
  // neighbouring thread blocks take ranges that lie a `by_head`-th of the list apart.
  int by_head = 0;
};

MmaPlan mma_plan(const DecodeArguments& arguments);
size_t mma_plan_workspace_bytes(const DecodeArguments& arguments, const MmaPlan& plan);
const char* mma_launch(const DecodeArguments& arguments, const MmaPlan& plan, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::decode
