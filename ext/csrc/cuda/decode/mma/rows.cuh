// The state of one warp: the queries of a unit, and the sums over the keys so far. rows_16.cuh and rows_8.cuh hold
// the two ways to lay rows and keys out in mma.sync's operands.
#pragma once

#include <cstdint>

#include "../../ptx/barrier.cuh"
#include "../../ptx/tma.cuh"
#include "merge.cuh"
#include "sequences.cuh"

namespace cuda_llm_ops::cuda::decode {

// The state that both layouts share: where the queries are, and where the warps add their sums.
template <typename T, int HeadDim, int Warps, int Groups, int TileRows>
struct RowsBase {
  static constexpr int block_keys = Warps * kTileKeys;
  static constexpr int pitch = HeadDim + merge_pad(TileRows);
  static constexpr int columns = HeadDim / 32;
  static constexpr int unit_rows = rows_of_unit(TileRows);
  static constexpr bool wide = false;
  static constexpr int query_chunks = HeadDim / 8;  // of a row
  static constexpr int query_loads = (TileRows * query_chunks + Warps * 32 - 1) / (Warps * 32);

  const MmaParameters& p;
  uint8_t* shared_q;    // query_bytes, 1024-byte aligned
  float* merge;         // (slots, p.rows, pitch)
  float2* merge_stats;  // (slots, kRows)
  int warp, lane;
  int row_count, head, row_block;
  const T* queries[query_loads];  // chunks of 8 columns that this thread brings, or nullptr

  __device__ __forceinline__ RowsBase(const MmaParameters& p_, uint8_t* query_tile, float* merge_, float2* stats_,
                                      int warp_, int lane_)
      : p(p_), shared_q(query_tile), merge(merge_), merge_stats(stats_), warp(warp_), lane(lane_) {}

  // The warps that share a block of keys meet.
  static __device__ __forceinline__ void meet() {
    static_assert(Groups <= 2);
    if (Groups == 1 || threadIdx.x < Warps * 32) {
      ptx::bar_sync(1, Warps * 32);
    } else {
      ptx::bar_sync(2, Warps * 32);
    }
  }

  __device__ __forceinline__ int query_of(int row) const { return p.seq_q == 1 ? 0 : row % p.seq_q; }

  // Keys at the end that the query of a row of the block does not see.
  __device__ __forceinline__ int keys_behind(int in_block) const {
    return p.seq_q - 1 - query_of(row_block * unit_rows + in_block);
  }

  __device__ __forceinline__ const T* query_at(int sequence, int in_block) const {
    return query_of_head(sequence, head, row_block * unit_rows + in_block);
  }

  __device__ __forceinline__ const T* query_of_head(int sequence, int kv_head, int row) const {
    const int group = p.seq_q == 1 ? row : row / p.seq_q;
    return static_cast<const T*>(p.q) + sequence * p.q_stride.batch + (kv_head * p.group + group) * p.q_stride.head +
           query_of(row) * p.q_stride.seq;
  }

  // Asks L2 for the queries of a unit that comes later.
  __device__ __forceinline__ void ask_queries(int sequence, int unit_head) const {
    const int kv_head = unit_head / p.row_blocks, first = (unit_head - kv_head * p.row_blocks) * unit_rows;
    constexpr int lines = (HeadDim + 63) / 64;  // of a row
    const int row = first + (warp * 32 + lane) / lines, column = (warp * 32 + lane) % lines * 64;
    static_assert(unit_rows * lines <= Warps * 32 || unit_rows == kRows);
    if (row < min(p.group_rows, first + unit_rows) && column < p.head_dim) {
      ptx::prefetch_l2(query_of_head(sequence, kv_head, row) + column);
    }
  }

  // A unit: where its queries lie, so that nothing but their loads is left to do.
  __device__ __forceinline__ void take(int sequence, int unit_head) {
    head = p.row_blocks == 1 ? unit_head : unit_head / p.row_blocks;
    row_block = unit_head - head * p.row_blocks;
    row_count = min(p.group_rows - row_block * unit_rows, unit_rows);
#pragma unroll
    for (int i = 0; i < query_loads; ++i) {
      const int index = i * Warps * 32 + warp * 32 + lane, row = index / query_chunks, chunk = index % query_chunks;
      queries[i] = row < row_count && chunk * 8 < p.head_dim ? query_at(sequence, row) + chunk * 8 : nullptr;
    }
  }

  // Brings its queries into shared memory, as a tile. Nobody reads that of the last unit any more: its end has met
  // since.
  __device__ __forceinline__ void share_queries() {
#pragma unroll
    for (int i = 0; i < query_loads; ++i) {
      const int index = i * Warps * 32 + warp * 32 + lane, row = index / query_chunks, chunk = index % query_chunks;
      if (row >= TileRows) break;
      *reinterpret_cast<uint4*>(shared_q + chunk / 8 * (TileRows * 128) + chunk_offset(row, chunk % 8)) =
          queries[i] != nullptr ? *reinterpret_cast<const uint4*>(queries[i]) : make_uint4(0u, 0u, 0u, 0u);
    }
    meet();
  }

  // A lane's chunk of 8 columns of a row, in the first 64 columns.
  static __device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) {
    return row * 128 + (chunk ^ (row % 8)) * 16;
  }
};

template <typename T, int HeadDim, int Warps, int Groups, int TileRows>
struct Rows;

}  // namespace cuda_llm_ops::cuda::decode
