// Decode on tensor cores (mma.sync): the work of a group of warps on one unit after another. tma.cuh and cp_async.cuh
// are its kernels. cluster.cuh has a partition and a merge of its own.
//
//   rows        The query heads that share a kv head, times seq_q. At most 16 of them form one tile of rows (64 in
//               wide.cuh), so that each byte of the cache is read once. More rows are further row blocks, which read
//               the cache again.
//   unit        (sequence, kv head, row block). Its keys are blocks of Warps x 16 (partition.cuh: which thread block
//               takes which blocks).
//   warp        Takes 16 keys of each block, the warp's number times 16 from the block's first. The scores come from
//               m16n8k16, the weights stay in registers, and each warp has a softmax of its own (rows_16.cuh,
//               rows_8.cuh). In wide.cuh it is a warpgroup that has them.
//   begin()     Loads the queries of a unit and finds out how many ranges of the partition hold the unit.
//   finish()    Adds the warps' sums in shared memory. A unit within one range is stored to `out` here. Otherwise each
//               range writes its part to the workspace and counts itself. The last one adds all parts in order, so that
//               the result does not depend on timing, stores the rows to `out`, and sets the count back to 0. Two
//               thread blocks of a cluster that share one unit add through each other's shared memory instead.
//
//   tile        Keys, or values: head_dim / 64 panels of rows of 128 bytes, 16-byte chunks XORed with row % 8 (TMA's
//               128-byte swizzle), so that ldmatrix meets no bank twice.
#pragma once

#include <cstdint>

#include "../../ptx/atomic.cuh"
#include "../../ptx/cluster.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/shared_address.cuh"
#include "columns.cuh"
#include "partition.cuh"
#include "rows_16.cuh"
#include "rows_8.cuh"

namespace cuda_llm_ops::cuda::decode {

// Shared memory in which the two thread blocks of a cluster add their one unit. Thread block 0 adds the even rows,
// thread block 1 the odd ones; each sends the other's rows to it.
template <int HeadDim>
struct ClusterPair {
  static constexpr int bytes = 2 * kFewRows * (HeadDim * 4 + 8);

  float* sums;        // (2, kFewRows, HeadDim): of the first and of the second
  uint32_t sent = 0;  // mbarrier: the rows from the other have arrived; 0 if the launch has no pairs

  static __device__ __forceinline__ int rank() { return static_cast<int>(blockIdx.x % 2); }
  static __device__ __forceinline__ uint32_t bytes_from_other(int rows) {
    return static_cast<uint32_t>((rows + 1 - rank()) / 2 * (HeadDim * 4 + 8));
  }
  __device__ __forceinline__ float2* stats() const { return reinterpret_cast<float2*>(sums + 2 * kFewRows * HeadDim); }
};

// A group of warps whose units lie anywhere in the partition.
//
// A part of a unit goes to a slot of the workspace. A range has two slots, because it shares at most two units with
// other ranges: the unit at its begin goes to its first slot, the unit at its end to its second. A unit that lies in
// several ranges is at the end of its first range and at the begin of all others. So all its parts are in first slots,
// but for that of its first range, if another unit lies in front of it there.
template <typename T, int HeadDim, int Warps, int Groups, int TileRows, bool ByHead = false,
          typename RowsOfUnit = Rows<T, HeadDim, Warps, Groups, TileRows>>
struct Worker : RowsOfUnit {
  using Base = RowsOfUnit;
  static constexpr int unit_rows = Base::unit_rows;
  using Base::columns, Base::pitch, Base::p, Base::merge, Base::merge_stats, Base::warp, Base::lane;
  using Base::head, Base::row_block, Base::row_count;

  const Lists& lists;
  const Partition& partition;
  int first, parts;      // the first range that holds blocks of the unit, and the number of such ranges
  bool first_is_second;  // the unit's part of its first range is in that range's second slot
  int mine;              // the slot of the part that is being computed
  int merges = 0;
  ClusterPair<HeadDim> pair{};
  bool paired = false;  // the two thread blocks of the cluster have this unit, and no other
  bool met = false;     // at both barriers of add_wide_pair()

  __device__ __forceinline__ Worker(const MmaParameters& parameters, const Lists& lists_, const Partition& partition_,
                                    uint8_t* queries, float* merge_at, float2* stats_at, int warp_, int lane_)
      : Base(parameters, queries, merge_at, stats_at, warp_, lane_), lists(lists_), partition(partition_) {}

  __device__ __forceinline__ void begin(const Cursor& at, int range) {
    Base::take(at.sequence, at.head);
    Base::load_queries();
    const int start = ByHead ? at.head * lists.total + lists.before(at.sequence)
                             : lists.before(at.sequence) * p.unit_heads + at.head * at.blocks;
    first = partition.range_of(start);
    parts = partition.range_of(start + at.blocks - 1) - first + 1;
    first_is_second = parts > 1 && start > partition.start(first);
    mine = 2 * range + (range == first && first_is_second ? 1 : 0);
    if constexpr (Groups == 2 || Base::wide) {
      paired = pair.sent != 0 && parts == 2 && first % 2 == 0 && !first_is_second &&
               start + at.blocks == partition.start(first + 2);
    }
  }

  // Ends the unit's blocks of the range: adds the warps' sums, then stores the rows to `out` or to the workspace.
  __device__ __forceinline__ void finish(const Cursor& at) {
    if (merges++ > 0) Base::meet();  // the last merge has been read
    const int slots = merge_slots(Warps, p.rows, Groups);
    if constexpr (Base::wide) {
      Base::store_sums();
    } else {
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
    }
    Base::meet();

    T* const out =
        static_cast<T*>(p.out) +
        (static_cast<int64_t>(at.sequence * p.kv_heads + head) * p.group_rows + row_block * unit_rows) * p.head_dim +
        lane * columns;
    if constexpr (Base::wide) {
      if (paired) return add_wide_pair(out);
      store_wide(out);
    } else {
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
        store(row, out, value, make_float2(common, total));
      }
    }
    if (Groups == 2 && paired) {
      add_pair(out);
    } else if (parts > 1 && warp < row_count && is_last()) {
      if (HeadDim <= 128 && row_count > Warps) {
        constexpr int rows = unit_rows / Warps >= 4 && Base::wide ? 4 : 2;
#pragma unroll 1
        for (int row = warp; row < row_count; row += rows * Warps) add_parts<rows, rows == 4 ? 5 : 6>(row, out);
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

  // The rows of wide.cuh, which the warpgroups have added: several at once.
  __device__ __forceinline__ void store_wide(T* out) {
    constexpr int several = 4;
#pragma unroll 1
    for (int first_row = warp; first_row < row_count; first_row += several * Warps) {
      float2 stats[several];
      float value[several][columns];
#pragma unroll
      for (int i = 0; i < several; ++i) {
        const int row = min(first_row + i * Warps, row_count - 1);
        stats[i] = merge_stats[row];
        load_columns(value[i], merge + row * pitch + lane * columns);
      }
#pragma unroll
      for (int i = 0; i < several; ++i) {
        const int row = first_row + i * Warps;
        if (row < row_count) store(row, out, value[i], stats[i]);
      }
    }
  }

  // A row of this range: to `out` or, if other ranges have parts of it, to where they are added.
  __device__ __forceinline__ void store(int row, T* out, float (&value)[columns], float2 stats) {
    if (parts == 1) {
      write(out + row * p.head_dim, value, stats.y);
    } else if (Groups == 2 && paired) {
      give(row, value, stats);
    } else {
      store_columns(p.partial + (mine * p.rows + row) * HeadDim + lane * columns, value);
      if (lane == 0) p.partial_stats[mine * unit_rows + row] = stats;
    }
  }

  // Two thread blocks that have one unit of wide.cuh read each other's sums. Thread block 0 adds the even rows. All
  // threads of the cluster come to both of its barriers (tma.cuh).
  __device__ __forceinline__ void add_wide_pair(T* out) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    const int rank = pair.rank();
    const uint32_t sums = ptx::mapa(ptx::shared_address(merge), rank ^ 1);
    const uint32_t statistics = ptx::mapa(ptx::shared_address(merge_stats), rank ^ 1);
    constexpr int rows = (unit_rows / 2 + Warps - 1) / Warps;  // of a warp
    static_assert(columns == 2 || columns == 4);
    float4 theirs[rows];
    float2 their_stats[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int row = min((i * Warps + warp) * 2 + rank, row_count - 1);
      const uint32_t at = sums + (row * pitch + lane * columns) * 4;
      theirs[i] = ptx::ld_cluster_vector(columns == 4 ? at : at & ~15u);
      if (columns == 2 && at % 16 != 0) theirs[i].x = theirs[i].z, theirs[i].y = theirs[i].w;
      their_stats[i] = make_float2(ptx::ld_cluster(statistics + row * 8), ptx::ld_cluster(statistics + row * 8 + 4));
    }
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int row = (i * Warps + warp) * 2 + rank;
      if (row >= row_count) continue;
      const float2 mine_stats = merge_stats[row];
      const float2 even = rank == 0 ? mine_stats : their_stats[i], odd = rank == 0 ? their_stats[i] : mine_stats;
      const float top = fmaxf(even.x, odd.x), of_even = part_weight(even.x, top), of_odd = part_weight(odd.x, top);
      const float own = rank == 0 ? of_even : of_odd, other = rank == 0 ? of_odd : of_even;
      const float their[4] = {theirs[i].x, theirs[i].y, theirs[i].z, theirs[i].w};
      float value[columns];
      load_columns(value, merge + row * pitch + lane * columns);
#pragma unroll
      for (int c = 0; c < columns; ++c) value[c] = value[c] * own + their[c] * other;
      write(out + row * p.head_dim, value, even.y * of_even + odd.y * of_odd);
    }
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();  // nobody reads this thread block's sums any more: it may end
    met = true;
  }

  // Gives a row's part to the thread block of the pair that adds this row.
  __device__ __forceinline__ void give(int row, const float (&value)[columns], float2 stats) {
    if constexpr (columns == 4) {
      const int rank = pair.rank(), place = rank * kFewRows + row;
      float* const to = pair.sums + place * HeadDim + lane * columns;
      if (row % 2 == rank) {
        store_columns(to, value);
        if (lane == 0) pair.stats()[place] = stats;
      } else {
        const uint32_t sent = ptx::mapa(pair.sent, rank ^ 1);
        ptx::st_async(ptx::mapa(ptx::shared_address(to), rank ^ 1), make_float4(value[0], value[1], value[2], value[3]),
                      sent);
        if (lane == 0) ptx::st_async(ptx::mapa(ptx::shared_address(pair.stats() + place), rank ^ 1), stats, sent);
      }
    }
  }

  // Each warp adds those of its rows that this thread block adds, and stores them to `out`.
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

  // Counts this warp's part. True for the warp of the last range: it adds the rows of this warp's number.
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

  // Adds the parts of `rows` rows (row, row + Warps, ...) in their order, and stores them to `out`. It loads the
  // statistics of 32 parts at once, and several parts at once, because each wait is a trip to L2.
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
        stats[r] = lane < some ? __ldcg(p.partial_stats + slot_of(base + lane) * unit_rows + real_row[r])
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

// Stores zeros for the sequences without a key: no range holds them.
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
