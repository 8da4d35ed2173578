// Decode on tensor cores (mma.sync): what its kernels share. But for that of cluster.cuh, with a cut and a merge of its
// own, the keys of all sequences are split evenly over the device.
//
//   rows        The group of query heads that share a kv head, times seq_q: at most 16 of them are one tile of rows, so
//               that each byte of the cache is read once. More are further row blocks, which read it again. Up to 8
//               have a tile of their own, keys x rows, with half the products.
//   unit        (sequence, kv head, row block). Its keys are blocks of Warps x 16; all blocks of all units, in order,
//               are cut into ranges. Each warp computes the same cut from the lengths, which only the device knows.
//   order       Sequence after sequence, all heads of each; or head after head, all sequences of each (ByHead).
//   warp        Takes the 16 keys of its number in each block. Scores are rows x keys by m16n8k16 (keys x rows with up
//               to 8 rows), weights stay in registers, the softmax is each warp's own.
//   merge       At the end of a unit's blocks the warps meet and merge in shared memory. Where the unit lies in several
//               ranges, each writes its part to the workspace and counts itself; whoever is last adds the parts
//               in order, so that the result does not depend on timing, and sets the count back to 0. Where a unit is
//               all that two thread blocks of a cluster have, they add through each other's shared memory instead.
//
//   tile        Keys, or values: head_dim / 64 panels of rows of 128 bytes, 16-byte chunks XORed with row % 8 (TMA's
//               128-byte swizzle): ldmatrix meets no bank twice.
#pragma once

#include <cuda.h>

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "../numeric.cuh"
#include "../ptx/atomic.cuh"
#include "../ptx/barrier.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/cvt.cuh"
#include "../ptx/ex2.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/mma_sync.cuh"
#include "../ptx/movmatrix.cuh"
#include "mma.h"

namespace cuda_llm_ops::cuda::decode {

constexpr unsigned kAllLanes = 0xffffffffu;

// Wide heads leave no registers for 16 queries; they are one tile in shared memory. Eight only pass through it.
__host__ __device__ constexpr bool shares_queries(int head_dim) { return head_dim >= 128; }
__host__ __device__ constexpr int query_bytes(int head_dim, int tile_rows) {
  return tile_rows == kFewRows || shares_queries(head_dim) ? tile_rows * head_dim * 2 : 0;
}

// Floats behind a row of the merge buffer: those that a warp's store meets differ in bank.
__host__ __device__ constexpr int merge_pad(int tile_rows) { return tile_rows == kFewRows ? 4 : 8; }

// Floats of the merge buffer, and integers of the lists.
__host__ __device__ constexpr int merge_floats(int slots, int rows, int head_dim, int tile_rows) {
  return slots * rows * (head_dim + merge_pad(tile_rows));
}

// Warps whose sums lie there at once. With 5 to 8 rows the second half of the warps adds to the first before: so two
// thread blocks fit on a multiprocessor. Two groups of warps have one alone.
__host__ __device__ constexpr int merge_slots(int warps, int rows, int groups) {
  return groups == 1 && rows > 4 && rows <= 8 ? warps / 2 : warps;
}

// Of `makers` warps that each make the lists of few sequences, or of all `warps`.
__host__ __device__ constexpr int list_integers(int makers, int warps, int batch) {
  return batch <= kFewSequences ? makers * 2 * kFewSequences : 2 * batch + (warps + 3) / 4 * 4;
}

// Where a warp is in the list of all blocks.
struct Cursor {
  int sequence, head, block;  // head: kv head and row block
  int blocks, length;         // of the sequence
};

// Of each sequence the length and, before it, the blocks of one head of all sequences before it.
struct Lists {
  int2* of;
  int total;  // blocks of one head of all sequences

  __device__ __forceinline__ int length(int sequence) const { return of[sequence].x; }
  __device__ __forceinline__ int before(int sequence) const { return of[sequence].y; }
};

template <int BlockKeys>
__device__ __forceinline__ int blocks_of(int length) {
  return (length + BlockKeys - 1) / BlockKeys;
}

__device__ __forceinline__ int length_of(const MmaParameters& p, int sequence) {
  return min(max(__ldcg(p.cache_lens + sequence * p.lens_stride), 0), p.capacity);
}

// What a length may be, read while the grid in front may still write it. A test may make it wrong.
#ifndef CUDA_LLM_OPS_DECODE_GUESS
#define CUDA_LLM_OPS_DECODE_GUESS(found) (found)
#endif
__device__ __forceinline__ int guess_of_length(const MmaParameters& p, int sequence) {
  return min(max(CUDA_LLM_OPS_DECODE_GUESS(length_of(p, sequence)), 0), p.capacity);
}

// One warp's inclusive sum.
__device__ __forceinline__ int scan_of_warp(int value, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// The lists of few sequences, made by one warp; from the guess of the lengths where that is asked for.
template <int BlockKeys, bool Guess = false>
__device__ __forceinline__ Lists make_few_lists(const MmaParameters& p, int2* room, int lane) {
  const auto length_at = [&](int b) { return b < p.batch ? Guess ? guess_of_length(p, b) : length_of(p, b) : 0; };
  const int first = length_at(2 * lane), second = length_at(2 * lane + 1);
  const int blocks = blocks_of<BlockKeys>(first), both = blocks + blocks_of<BlockKeys>(second);
  const int through = p.batch <= 2 ? both : scan_of_warp(both, lane);
  __syncwarp();
  room[2 * lane] = make_int2(first, through - both);
  room[2 * lane + 1] = make_int2(second, through - both + blocks);
  __syncwarp();
  return {room, __shfl_sync(kAllLanes, through, (p.batch - 1) / 2)};
}

// Those that another warp made, after a barrier.
template <int BlockKeys>
__device__ __forceinline__ Lists few_lists(const MmaParameters& p, int2* room) {
  const int2 last = room[p.batch - 1];
  return {room, last.y + blocks_of<BlockKeys>(last.x)};
}

// Whether those are the lengths.
__device__ __forceinline__ bool few_lists_right(const MmaParameters& p, const Lists& lists, int lane) {
  const auto right = [&](int b) { return b >= p.batch || lists.length(b) == length_of(p, b); };
  const bool first = right(2 * lane), second = right(2 * lane + 1);
  return __all_sync(kAllLanes, first && second) != 0;
}

// The lists, made by all warps of the thread block. After them, room for integers.
template <int BlockWarps, int BlockKeys>
__device__ __forceinline__ Lists make_lists(const MmaParameters& p, int2* room, int warp, int lane) {
  int* const totals = reinterpret_cast<int*>(room + p.batch);
  Lists lists{room, 0};
  const int each = (p.batch + BlockWarps * 32 - 1) / (BlockWarps * 32);
  const int first = min((warp * 32 + lane) * each, p.batch), last = min(first + each, p.batch);
  int mine = 0;
#pragma unroll 1
  for (int b = first; b < last; ++b) {
    const int length = length_of(p, b);
    lists.of[b].x = length;
    mine += blocks_of<BlockKeys>(length);
  }
  const int through = scan_of_warp(mine, lane);
  if (lane == 31) totals[warp] = through;
  __syncthreads();
  int before = through - mine;
#pragma unroll
  for (int w = 0; w < BlockWarps; ++w) {
    before += w < warp ? totals[w] : 0;
    lists.total += totals[w];
  }
#pragma unroll 1
  for (int b = first; b < last; ++b) {
    lists.of[b].y = before;
    before += blocks_of<BlockKeys>(lists.length(b));
  }
  __syncthreads();
  return lists;
}

// The cut of all blocks into one range a thread block: the first `more` have one block more than the others.
struct Cut {
  int each, more;

  Cut() = default;
  __device__ __forceinline__ Cut(int total, int ranges) : each(quotient(total, ranges)), more(total - each * ranges) {}
  __device__ __forceinline__ int start(int range) const { return range * each + min(range, more); }
  __device__ __forceinline__ int range_of(int block) const {
    const int large = more * (each + 1);
    return block < large ? quotient(block, each + 1) : more + quotient(block - large, each);
  }

 private:
  static __device__ __forceinline__ int quotient(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
  }
};

template <int BlockKeys, bool ByHead = false>
__device__ __forceinline__ Cursor cursor_at(const MmaParameters& p, const Lists& lists, int position) {
  Cursor at;
  at.head = 0;
  if (ByHead) {
    at.head = static_cast<int>(static_cast<unsigned>(position) / static_cast<unsigned>(lists.total));
    position -= at.head * lists.total;
  }
  const int heads = ByHead ? 1 : p.unit_heads;  // of a sequence, side by side in the order
  int low = 0, high = p.batch;  // the last sequence that starts at or before it; empty ones start where the next does
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (lists.before(middle) * heads <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  at.sequence = low;
  at.length = lists.length(low);
  at.blocks = max(blocks_of<BlockKeys>(at.length), 1);
  at.block = position - lists.before(low) * heads;
  if (!ByHead) {
    at.head = static_cast<int>(static_cast<unsigned>(at.block) / static_cast<unsigned>(at.blocks));
    at.block -= at.head * at.blocks;
  }
  return at;
}

template <int BlockKeys, bool ByHead = false>
__device__ __forceinline__ void advance(const MmaParameters& p, const Lists& lists, Cursor& at) {
  if (++at.block < at.blocks) return;
  at.block = 0;
  if (!ByHead) {
    if (++at.head < p.unit_heads) return;
    at.head = 0;
  }
#pragma unroll 1
  do {
    if (++at.sequence == p.batch && ByHead && ++at.head < p.unit_heads) at.sequence = 0;
  } while (at.sequence < p.batch && lists.length(at.sequence) == 0);
  if (at.sequence < p.batch) {
    at.length = lists.length(at.sequence);
    at.blocks = blocks_of<BlockKeys>(at.length);
  }
}

template <typename T, int HeadDim>
struct Softmax {
  float o[HeadDim / 8][4];  // rows g and g + 8, columns 8 j + 2 t and the next
  float maximum[2], sum[2];  // of scores before the scale; of this lane's keys

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < HeadDim / 8; ++j) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }

  // Scores of 16 rows x 16 keys become weights, packed as the left operand of the product with the values.
  __device__ __forceinline__ void weigh(float (&s)[2][4], float scale_log2, uint32_t (&weights)[4]) {
    float top[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
      float most = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      top[h] = fmaxf(most, maximum[h]);
    }
    if (__any_sync(kAllLanes, top[0] > maximum[0] || top[1] > maximum[1])) {
      float shrink[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shrink[h] = top[h] > maximum[h] ? ptx::ex2((maximum[h] - top[h]) * scale_log2) : 1.0f;
        sum[h] *= shrink[h];
        maximum[h] = top[h];
      }
#pragma unroll
      for (int j = 0; j < HeadDim / 8; ++j) {
        o[j][0] *= shrink[0], o[j][1] *= shrink[0];
        o[j][2] *= shrink[1], o[j][3] *= shrink[1];
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = maximum[h] == -INFINITY ? 0.0f : maximum[h] * scale_log2;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float& low = s[n][2 * h];
        float& high = s[n][2 * h + 1];
        low = ptx::ex2(fmaf(low, scale_log2, -base));
        high = ptx::ex2(fmaf(high, scale_log2, -base));
        weights[2 * n + h] = ptx::cvt_rn_x2<T>(low, high);
        const float2 rounded = unpack_pair<T>(weights[2 * n + h]);
        sum[h] += rounded.x + rounded.y;
      }
    }
  }
};

// Columns that a lane has of a row, and their 16-bit store.
template <typename T, int Columns>
__device__ __forceinline__ void store_row(T* to, const float (&value)[Columns]) {
  uint32_t packed[Columns / 2];
#pragma unroll
  for (int i = 0; i < Columns / 2; ++i) packed[i] = ptx::cvt_rn_x2<T>(value[2 * i], value[2 * i + 1]);
  if constexpr (Columns == 2) {
    *reinterpret_cast<uint32_t*>(to) = packed[0];
  } else if constexpr (Columns == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
  } else {
    static_assert(Columns == 8);
    *reinterpret_cast<uint4*>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

template <int Columns>
__device__ __forceinline__ void load_columns(float (&value)[Columns], const float* from) {
  if constexpr (Columns == 2) {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    value[0] = pair.x, value[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
  }
}

// From L2: another thread block wrote it.
template <int Columns>
__device__ __forceinline__ void load_columns_l2(float (&value)[Columns], const float* from) {
  if constexpr (Columns == 2) {
    const float2 pair = __ldcg(reinterpret_cast<const float2*>(from));
    value[0] = pair.x, value[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
      value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
    }
  }
}

template <int Columns>
__device__ __forceinline__ void store_columns(float* to, const float (&value)[Columns]) {
  if constexpr (Columns == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
  } else {
#pragma unroll
    for (int i = 0; i < Columns; i += 4) {
      *reinterpret_cast<float4*>(to + i) = make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    }
  }
}

// exp2 of a part's maximum over the common one: 0 for a part that saw no key.
__device__ __forceinline__ float part_weight(float maximum, float common) {
  return maximum == -INFINITY ? 0.0f : ptx::ex2(maximum - common);
}

// What one warp computes with: the queries of a unit and the sums over the keys so far.
template <typename T, int HeadDim, int Warps, int Groups, int TileRows>
struct RowsBase {
  static constexpr int block_keys = Warps * kTileKeys;
  static constexpr int pitch = HeadDim + merge_pad(TileRows);
  static constexpr int columns = HeadDim / 32;
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
    return p.seq_q - 1 - query_of(row_block * kRows + in_block);
  }

  __device__ __forceinline__ const T* query_at(int sequence, int in_block) const {
    const int row = row_block * kRows + in_block, group = p.seq_q == 1 ? row : row / p.seq_q;
    return static_cast<const T*>(p.q) + sequence * p.q_stride.batch + (head * p.group + group) * p.q_stride.head +
           query_of(row) * p.q_stride.seq;
  }

  // A unit: where its queries lie, so that nothing but their loads is left to do.
  __device__ __forceinline__ void take(int sequence, int unit_head) {
    head = p.row_blocks == 1 ? unit_head : unit_head / p.row_blocks;
    row_block = unit_head - head * p.row_blocks;
    row_count = min(p.group_rows - row_block * kRows, kRows);
#pragma unroll
    for (int i = 0; i < query_loads; ++i) {
      const int index = i * Warps * 32 + warp * 32 + lane, row = index / query_chunks, chunk = index % query_chunks;
      queries[i] = row < row_count && chunk * 8 < p.head_dim ? query_at(sequence, row) + chunk * 8 : nullptr;
    }
  }

  // Brings its queries into shared memory, as a tile. Nobody reads that of the last unit any more: its end has met since.
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

// Up to 16 rows: scores are rows x keys.
template <typename T, int HeadDim, int Warps, int Groups>
struct Rows<T, HeadDim, Warps, Groups, kRows> : RowsBase<T, HeadDim, Warps, Groups, kRows> {
  using Base = RowsBase<T, HeadDim, Warps, Groups, kRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::shared_q, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count, Base::row_block;

  uint32_t q[shares_queries(HeadDim) ? 1 : HeadDim / 16][4];
  Softmax<T, HeadDim> state;
  int behind[2];  // keys at the end that the queries of rows g and g + 8 do not see

  const T* direct[2];        // rows g and g + 8, where queries do not pass through shared memory

  __device__ __forceinline__ void take(int sequence, int unit_head) {
    Base::take(sequence, unit_head);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      behind[h] = Base::keys_behind(lane / 4 + 8 * h);
      direct[h] = Base::query_at(sequence, lane / 4 + 8 * h);
    }
  }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    if constexpr (shares_queries(HeadDim)) {
      Base::share_queries();
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const T* const from = direct[h];
#pragma unroll
        for (int i = 0; i < HeadDim / 8; ++i) {
          const int d = i * 8 + lane % 4 * 2;
          q[i / 2][i % 2 * 2 + h] =
              row < row_count && d < p.head_dim ? *reinterpret_cast<const uint32_t*>(from + d) : 0u;
        }
      }
    }
    state.clear();
  }

  // A tile of 16 keys, `left` of them (and more behind it) within the length. `k_panels` and `v_panels` are the shared
  // addresses of its first row in the first panel; panels lie panel_bytes apart.
  // Returns bits that depend on everything that was loaded.
  __device__ __forceinline__ uint32_t tile(uint32_t k_panels, uint32_t v_panels, uint32_t panel_bytes, int left) {
    // ldmatrix: of the keys lanes 0-15 address rows 0-7 (two chunks), 16-31 rows 8-15; of the values, which it
    // transposes, lanes 0-15 rows 0-15 and 16-31 the same in the next chunk.
    const uint32_t k_lane = k_panels + chunk_offset((lane / 16) * 8 + lane % 8, lane / 8 % 2);
    const uint32_t v_lane = v_panels + chunk_offset(lane % 16, lane / 16);
    const uint32_t q_lane = ptx::shared_address(shared_q) + chunk_offset(lane % 16, lane / 16);
    float s[2][4] = {}, odd[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < HeadDim / 16; ++kk) {
      uint32_t keys[4], loaded[4];
      ptx::ldmatrix_x4(keys, (k_lane + kk / 4 * panel_bytes) ^ (kk % 4 * 32));
      if constexpr (shares_queries(HeadDim)) {
        ptx::ldmatrix_x4(loaded, (q_lane + kk / 4 * (kRows * 128)) ^ (kk % 4 * 32));
      }
      const uint32_t(&queries)[4] = shares_queries(HeadDim) ? loaded : q[shares_queries(HeadDim) ? 0 : kk];
      ptx::mma_sync_m16n8k16<T>(kk % 2 == 0 ? s[0] : odd[0], queries, keys[0], keys[1]);
      ptx::mma_sync_m16n8k16<T>(kk % 2 == 0 ? s[1] : odd[1], queries, keys[2], keys[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] += odd[n][e];
    }
    if (left - (p.seq_q - 1) < kTileKeys) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (n * 8 + lane % 4 * 2 + e % 2 >= left - behind[e / 2]) s[n][e] = -INFINITY;
        }
      }
    }
    uint32_t weights[4];
    state.weigh(s, p.scale_log2, weights);
    uint32_t all = 0;
#pragma unroll
    for (int dd = 0; dd < HeadDim / 16; ++dd) {
      uint32_t values[4];
      ptx::ldmatrix_x4_trans(values, (v_lane + dd / 4 * panel_bytes) ^ (dd % 4 * 32));
      all = values[0];  // loads from shared memory come back in order
      ptx::mma_sync_m16n8k16<T>(state.o[2 * dd], weights, values[0], values[1]);
      ptx::mma_sync_m16n8k16<T>(state.o[2 * dd + 1], weights, values[2], values[3]);
    }
    return all;
  }

  // The largest score of a row, scaled, in units of log2.
  __device__ __forceinline__ float top(int h) const {
    return state.maximum[h] == -INFINITY ? -INFINITY : state.maximum[h] * p.scale_log2;
  }

  // The warp's sums, under these largest scores, for the others to read.
  __device__ __forceinline__ void store_sums(int slot, const float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 1);
      state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 2);
      const int row = lane / 4 + 8 * h;
      if (row < row_count) {
        float* const to = merge + (slot * p.rows + row) * pitch + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < HeadDim / 8; ++j) {
          *reinterpret_cast<float2*>(to + 8 * j) = make_float2(state.o[j][2 * h], state.o[j][2 * h + 1]);
        }
        if (lane % 4 == 0) merge_stats[slot * kRows + row] = make_float2(tops[h], state.sum[h]);
      }
    }
  }

  // Adds what another warp stored. Each lane reads what the same lane of the other wrote.
  __device__ __forceinline__ void add_sums(int slot, float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane / 4 + 8 * h;
      if (row < row_count) {
        const float2 stats = merge_stats[slot * kRows + row];
        const float* const from = merge + (slot * p.rows + row) * pitch + lane % 4 * 2;
        const float common = fmaxf(tops[h], stats.x);
        const float own = part_weight(tops[h], common), other = part_weight(stats.x, common);
        state.sum[h] = state.sum[h] * own + (lane % 4 == 0 ? stats.y * other : 0.0f);
        tops[h] = common;
#pragma unroll
        for (int j = 0; j < HeadDim / 8; ++j) {
          const float2 part = *reinterpret_cast<const float2*>(from + 8 * j);
          state.o[j][2 * h] = state.o[j][2 * h] * own + part.x * other;
          state.o[j][2 * h + 1] = state.o[j][2 * h + 1] * own + part.y * other;
        }
      }
    }
    __syncwarp();
  }
};

// Up to 8 rows: scores are keys x rows, and the sums columns x rows, so that no half of a product is empty and the
// queries fit in registers.
template <typename T, int HeadDim, int Warps, int Groups>
struct Rows<T, HeadDim, Warps, Groups, kFewRows> : RowsBase<T, HeadDim, Warps, Groups, kFewRows> {
  using Base = RowsBase<T, HeadDim, Warps, Groups, kFewRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::shared_q, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count;

  // Weights are at most 2 to this: what a 16-bit float holds, and what all keys add up to, is far above.
  static constexpr float kHeadroom = 8.0f;

  uint32_t q[HeadDim / 16][2];
  float o[HeadDim / 16][4];  // columns 16 i + g (two) and 16 i + 8 + g, rows 2 t and the next
  float base[2], sum[2];     // of rows 2 t and the next: of what weights are powers, in log2; of this lane's keys
  int behind[2];             // keys at the end that their queries do not see

  __device__ __forceinline__ void take(int sequence, int unit_head) {
    Base::take(sequence, unit_head);
#pragma unroll
    for (int h = 0; h < 2; ++h) behind[h] = Base::keys_behind(lane % 4 * 2 + h);
  }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    Base::share_queries();
    const uint32_t q_lane = ptx::shared_address(shared_q) + chunk_offset(lane % 8, lane / 8);
#pragma unroll
    for (int kk = 0; kk < HeadDim / 16; kk += 2) {
      uint32_t loaded[4];
      ptx::ldmatrix_x4(loaded, (q_lane + kk / 4 * (kFewRows * 128)) ^ (kk % 4 * 32));
      q[kk][0] = loaded[0], q[kk][1] = loaded[1], q[kk + 1][0] = loaded[2], q[kk + 1][1] = loaded[3];
    }
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    base[0] = base[1] = -FLT_MAX;
    sum[0] = sum[1] = 0.0f;
  }

  // A tile of 16 keys, as above. All rows see all keys of a whole one.
  template <bool Whole>
  __device__ __forceinline__ uint32_t tile(uint32_t k_panels, uint32_t v_panels, uint32_t panel_bytes, int left) {
    const uint32_t k_lane = k_panels + chunk_offset(lane % 16, lane / 16);
    const uint32_t v_lane = v_panels + chunk_offset((lane / 16) * 8 + lane % 8, lane / 8 % 2);
    uint32_t keys[HeadDim / 16][4];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) ptx::ldmatrix_x4(keys[i], (k_lane + i / 4 * panel_bytes) ^ (i % 4 * 32));
    float s[4][4] = {};  // four chains of products: each waits for the one before it
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) ptx::mma_sync_m16n8k16<T>(s[i % 4], keys[i], q[i][0], q[i][1]);
    uint32_t values[HeadDim / 16][4];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) {
      ptx::ldmatrix_x4_trans(values[i], (v_lane + i / 4 * panel_bytes) ^ (i % 4 * 32));
    }
    float score[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) score[e] = (s[0][e] + s[1][e]) + (s[2][e] + s[3][e]);
    if (!Whole && left - (p.seq_q - 1) < kTileKeys) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e / 2 * 8 + lane / 4 >= left - behind[e % 2]) score[e] = -INFINITY;
      }
    }
    uint32_t weights[2];
    weigh(score, weights);
    uint32_t loaded = weights[0];
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) {
      ptx::mma_sync_m16n8k16<T>(o[i], values[i], weights[0], weights[1]);
      loaded |= values[i][0];
    }
    return loaded;
  }

  // Scores of 16 keys x 8 rows become weights, packed as the right operand of the product with the values. They are
  // powers of a score that was the largest of an earlier tile: only where one is larger by the headroom does it move.
  __device__ __forceinline__ void weigh(float (&score)[4], uint32_t (&weights)[2]) {
    float power[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) power[e] = fmaf(score[e], p.scale_log2, -base[e % 2]);
    // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
    const float most = fmaxf(fmaxf(power[0], power[1]), fmaxf(power[2], power[3]));
    if (__any_sync(kAllLanes, most > kHeadroom)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = fmaxf(score[h], score[2 + h]);
#pragma unroll
        for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
        top = fmaxf(base[h], top * p.scale_log2);
        const float shrink = ptx::ex2(base[h] - top);
        base[h] = top;
        sum[h] *= shrink;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) o[i][h] *= shrink, o[i][2 + h] *= shrink;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) power[e] = fmaf(score[e], p.scale_log2, -base[e % 2]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) power[e] = ptx::ex2(power[e]);
    // The sum of the weights as they are multiplied: where one key has nearly all the weight, its rounding cancels.
    const uint32_t first = ptx::cvt_rn_x2<T>(power[0], power[1]), second = ptx::cvt_rn_x2<T>(power[2], power[3]);
    const float2 one = unpack_pair<T>(first), other = unpack_pair<T>(second);
    sum[0] += one.x + other.x;
    sum[1] += one.y + other.y;
    weights[0] = ptx::movmatrix_trans(first);
    weights[1] = ptx::movmatrix_trans(second);
  }

  // As above.
  __device__ __forceinline__ float top(int h) const { return base[h]; }

  __device__ __forceinline__ void store_sums(int slot, const float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum[h] += __shfl_xor_sync(kAllLanes, sum[h], step);
      const int row = lane % 4 * 2 + h;
      if (row < row_count) {
        float* const to = merge + (slot * p.rows + row) * pitch + lane / 4;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) to[16 * i] = o[i][h], to[16 * i + 8] = o[i][2 + h];
        if (lane / 4 == 0) merge_stats[slot * kRows + row] = make_float2(tops[h], sum[h]);
      }
    }
  }

  __device__ __forceinline__ void add_sums(int slot, float (&tops)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane % 4 * 2 + h;
      if (row < row_count) {
        const float2 stats = merge_stats[slot * kRows + row];
        const float* const from = merge + (slot * p.rows + row) * pitch + lane / 4;
        const float common = fmaxf(tops[h], stats.x);
        const float own = part_weight(tops[h], common), other = part_weight(stats.x, common);
        sum[h] = sum[h] * own + (lane / 4 == 0 ? stats.y * other : 0.0f);
        tops[h] = common;
#pragma unroll
        for (int i = 0; i < HeadDim / 16; ++i) {
          o[i][h] = o[i][h] * own + from[16 * i] * other;
          o[i][2 + h] = o[i][2 + h] * own + from[16 * i + 8] * other;
        }
      }
    }
    __syncwarp();
  }
};

// Where the two thread blocks of a cluster add a unit that is all that they have: each the rows of its parity, which the
// other sends.
template <int HeadDim>
struct Pair {
  static constexpr int bytes = 2 * kFewRows * (HeadDim * 4 + 8);

  float* sums;        // (2, kFewRows, HeadDim): of the first and of the second
  uint32_t sent = 0;  // mbarrier: what the other sends is here; 0 where there are no pairs

  static __device__ __forceinline__ int rank() { return static_cast<int>(blockIdx.x % 2); }
  static __device__ __forceinline__ uint32_t bytes_from_other(int rows) {
    return static_cast<uint32_t>((rows + 1 - rank()) / 2 * (HeadDim * 4 + 8));
  }
  __device__ __forceinline__ float2* stats() const { return reinterpret_cast<float2*>(sums + 2 * kFewRows * HeadDim); }
};

// One whose units lie anywhere in the cut.
template <typename T, int HeadDim, int Warps, int Groups, int TileRows, bool ByHead = false>
struct Worker : Rows<T, HeadDim, Warps, Groups, TileRows> {
  using Base = Rows<T, HeadDim, Warps, Groups, TileRows>;
  using Base::columns, Base::pitch, Base::p, Base::merge, Base::merge_stats, Base::warp, Base::lane;
  using Base::head, Base::row_block, Base::row_count;

  const Lists& lists;
  const Cut& cut;
  int first, parts;      // ranges of the cut that hold the unit
  bool first_is_second;  // the first of them holds another unit before this one
  int mine;              // slot of the part that is being computed
  int merges = 0;
  Pair<HeadDim> pair{};
  bool paired = false;   // the unit is all that the two thread blocks of the cluster have

  __device__ __forceinline__ Worker(const MmaParameters& parameters, const Lists& lists_, const Cut& cut_,
                                    uint8_t* queries, float* merge_at, float2* stats_at, int warp_, int lane_)
      : Base(parameters, queries, merge_at, stats_at, warp_, lane_), lists(lists_), cut(cut_) {}

  __device__ __forceinline__ void begin(const Cursor& at, int range) {
    Base::take(at.sequence, at.head);
    Base::load_queries();
    const int start = ByHead ? at.head * lists.total + lists.before(at.sequence)
                                : lists.before(at.sequence) * p.unit_heads + at.head * at.blocks;
    first = cut.range_of(start);
    parts = cut.range_of(start + at.blocks - 1) - first + 1;
    first_is_second = parts > 1 && start > cut.start(first);
    mine = 2 * range + (range == first && first_is_second ? 1 : 0);
    if constexpr (Groups == 2) {
      paired = pair.sent != 0 && parts == 2 && first % 2 == 0 && !first_is_second &&
               start + at.blocks == cut.start(first + 2);
    }
  }

  // The end of the unit's blocks in the range.
  __device__ __forceinline__ void finish(const Cursor& at) {
    if (merges++ > 0) Base::meet();  // the last merge has been read
    const int slots = merge_slots(Warps, p.rows, Groups);
    float tops[2] = {Base::top(0), Base::top(1)};
    if (slots < Warps) {
      if (warp >= slots) Base::store_sums(warp - slots, tops);
      Base::meet();
      if (warp < slots) {
        Base::add_sums(warp, tops);
        Base::store_sums(warp, tops);
      }
    } else {
      Base::store_sums(warp, tops);
    }
    Base::meet();

    T* const out = static_cast<T*>(p.out) +
                   (static_cast<int64_t>(at.sequence * p.kv_heads + head) * p.group_rows + row_block * kRows) *
                       p.head_dim +
                   lane * columns;
#pragma unroll 1
    for (int row = warp; row < row_count; row += Warps) {
      float2 stats[Warps];
      float common = -INFINITY;
#pragma unroll
      for (int w = 0; w < Warps; ++w) {
        if (w >= slots) break;
        stats[w] = merge_stats[w * kRows + row];
        common = fmaxf(common, stats[w].x);
      }
      float total = 0.0f, value[columns] = {};
#pragma unroll
      for (int w = 0; w < Warps; ++w) {
        if (w >= slots) break;
        const float weight = part_weight(stats[w].x, common);
        float part[columns];
        load_columns(part, merge + (w * p.rows + row) * pitch + lane * columns);
        total += weight * stats[w].y;
#pragma unroll
        for (int c = 0; c < columns; ++c) value[c] += weight * part[c];
      }
      if (parts == 1) {
        write(out + row * p.head_dim, value, total);
      } else if (Groups == 2 && paired) {
        give(row, value, make_float2(common, total));
      } else {
        store_columns(p.partial + (mine * p.rows + row) * HeadDim + lane * columns, value);
        if (lane == 0) p.partial_stats[mine * kRows + row] = make_float2(common, total);
      }
    }
    if (Groups == 2 && paired) {
      add_pair(out);
    } else if (parts > 1 && warp < row_count && is_last()) {
      if (HeadDim <= 128 && row_count > Warps) {
#pragma unroll 1
        for (int row = warp; row < row_count; row += 2 * Warps) add_parts<2, 6>(row, out);
      } else {
#pragma unroll 1
        for (int row = warp; row < row_count; row += Warps) add_parts<1, columns == 8 ? 2 : 9>(row, out);
      }
    }
  }

 private:
  __device__ __forceinline__ void write(T* to, float (&value)[columns], float total) {
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
#pragma unroll
    for (int c = 0; c < columns; ++c) value[c] *= inverse;
    if (lane * columns < p.head_dim) store_row<T, columns>(to, value);
  }

  // A row's part, to the thread block of the pair that adds it.
  __device__ __forceinline__ void give(int row, const float (&value)[columns], float2 stats) {
    if constexpr (columns == 4) {
      const int rank = pair.rank(), place = rank * kFewRows + row;
      float* const to = pair.sums + place * HeadDim + lane * columns;
      if (row % 2 == rank) {
        store_columns(to, value);
        if (lane == 0) pair.stats()[place] = stats;
      } else {
        const uint32_t sent = ptx::mapa(pair.sent, rank ^ 1);
        ptx::st_async(ptx::mapa(ptx::shared_address(to), rank ^ 1),
                      make_float4(value[0], value[1], value[2], value[3]), sent);
        if (lane == 0) ptx::st_async(ptx::mapa(ptx::shared_address(pair.stats() + place), rank ^ 1), stats, sent);
      }
    }
  }

  // Each warp adds its own rows, of those that are the thread block's.
  __device__ __forceinline__ void add_pair(T* out) {
    __syncwarp();
    ptx::mbarrier_wait_cluster(pair.sent, 0);  // nobody sends to this thread block any more: it may end
#pragma unroll 1
    for (int row = warp; row < row_count; row += Warps) {
      if (row % 2 != pair.rank()) continue;
      const float2 first = pair.stats()[row], second = pair.stats()[kFewRows + row];
      const float top = fmaxf(first.x, second.x);
      const float of_first = part_weight(first.x, top), of_second = part_weight(second.x, top);
      float value[columns], other[columns];
      load_columns(value, pair.sums + row * HeadDim + lane * columns);
      load_columns(other, pair.sums + (kFewRows + row) * HeadDim + lane * columns);
#pragma unroll
      for (int c = 0; c < columns; ++c) value[c] = value[c] * of_first + other[c] * of_second;
      write(out + row * p.head_dim, value, first.y * of_first + second.y * of_second);
    }
  }

  // Each warp counts, and adds, its own rows.
  __device__ __forceinline__ bool is_last() {
    uint32_t* const counter = p.counters + first * Warps + warp;
    __syncwarp();
    int last = 0;
    if (lane == 0) {
      last = ptx::atomic_add_acq_rel(counter, 1) == static_cast<uint32_t>(parts - 1);
      if (last != 0) *counter = 0;
    }
    return __shfl_sync(kAllLanes, last, 0) != 0;
  }

  __device__ __forceinline__ int slot_of(int part) const {
    return 2 * (first + part) + (part == 0 && first_is_second ? 1 : 0);
  }

  // Adds the parts of rows `row` and, where there is one, row + Warps. The statistics of 32 parts, and several parts,
  // are loaded at once: each wait is a trip to L2.
  template <int rows, int at_once>
  __device__ __forceinline__ void add_parts(int row, T* out) {
    float common[rows], total[rows], value[rows][columns];
    int real_row[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      real_row[r] = min(row + r * Warps, row_count - 1);
      common[r] = -INFINITY, total[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < columns; ++c) value[r][c] = 0.0f;
    }
#pragma unroll 1
    for (int base = 0; base < parts; base += 32) {
      const int some = min(parts - base, 32);
      float weight[rows];
      float2 stats[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        stats[r] = lane < some ? __ldcg(p.partial_stats + slot_of(base + lane) * kRows + real_row[r])
                               : make_float2(-INFINITY, 0.0f);
      }
#pragma unroll 1
      for (int i = 0; i < some; i += at_once) {
        float other[rows][at_once][columns];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          const int slot = slot_of(base + min(i + j, some - 1));
#pragma unroll
          for (int r = 0; r < rows; ++r) {
            load_columns_l2(other[r][j], p.partial + (slot * p.rows + real_row[r]) * HeadDim + lane * columns);
          }
        }
        if (i == 0) {
#pragma unroll
          for (int r = 0; r < rows; ++r) {
            float top = stats[r].x;
#pragma unroll
            for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
            top = fmaxf(top, common[r]);
            const float shrink = part_weight(common[r], top);
            weight[r] = part_weight(stats[r].x, top);
            common[r] = top;
            total[r] = total[r] * shrink + weight[r] * stats[r].y;
#pragma unroll
            for (int c = 0; c < columns; ++c) value[r][c] *= shrink;
          }
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
#pragma unroll
          for (int r = 0; r < rows; ++r) {
            const float of_part = __shfl_sync(kAllLanes, weight[r], i + j);  // 0 of those behind the last
#pragma unroll
            for (int c = 0; c < columns; ++c) value[r][c] += i + j < some ? of_part * other[r][j][c] : 0.0f;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) total[r] += __shfl_xor_sync(kAllLanes, total[r], step);
      if (row + r * Warps < row_count) write(out + (row + r * Warps) * p.head_dim, value[r], total[r]);
    }
  }
};

// Sequences without a key are in nobody's range.
template <typename T, int Threads>
__device__ __forceinline__ void zero_empty(const MmaParameters& p, const Lists& lists) {
  const int64_t of_sequence = static_cast<int64_t>(p.kv_heads) * p.group_rows * p.head_dim;
#pragma unroll 1
  for (int b = blockIdx.x; b < p.batch; b += gridDim.x) {
    if (lists.length(b) > 0) continue;
    T* const out = static_cast<T*>(p.out) + b * of_sequence;
#pragma unroll 1
    for (int64_t i = threadIdx.x * 8; i < of_sequence; i += Threads * 8) {
      *reinterpret_cast<uint4*>(out + i) = make_uint4(0u, 0u, 0u, 0u);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::decode
