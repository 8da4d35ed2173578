// Decode with TMA and clusters (Hopper), for small caches: a cluster computes one unit. Its thread blocks take the
// unit's blocks of keys in turn and add their parts through each other's shared memory. So there are no counters and no
// parts in global memory, and which blocks a thread block takes does not depend on the length.
//
//   way         producer warps: TMA -> ring (tma_ring.cuh); the other warps: consume() -> store_sums(): each warp's
//               sums, in the ring's memory -> send(): to the thread block that adds them -> add(): all parts, stored to
//               `out`
//   ring        full[stage], empty[stage] as in tma_ring.cuh. One producer warp copies keys and values. If pages are so
//               small that a block is several copies, one warp copies the keys and another the values.
//   early       While the grid in front ends, the computing warps ask L2 for the first blocks of keys. They use the
//               length and the pages that they find: a guess, since that grid may still write them. All address
//               arithmetic is done then, too, because a division takes a tenth of a trip to memory. After
//               griddepcontrol.wait the producer loads the blocks of a contiguous cache at once; the length, read
//               again, decides which of them count. Pages are looked up together with the length. The next grid may
//               begin when this one has asked for its last block. If it began earlier, the two would share the
//               bandwidth from the start.
//   parts       Each thread block adds its warps' sums when nothing arrives in the ring any more. It sends each column
//               to the thread block that owns it: every thread block owns an equal share of the unit's rows and
//               columns. The cluster's barrier is passed at the start, so that all have begun; the mbarrier `sent`
//               counts what the others send.
#pragma once

#include "../../ptx/cluster.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "tma_ring.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages>
struct ClusterShape : TmaShape<HeadDim, TileRows, Warps, Stages, 1> {
  using Tma = TmaShape<HeadDim, TileRows, Warps, Stages, 1>;
  static constexpr int stats_bytes = kMaxCluster * kRows * 8;
  static_assert(merge_floats(Warps, TileRows, HeadDim, TileRows) * 4 + Warps * kRows * 8 <= Tma::ring_bytes);

  // Whole shares of four columns may be a little more than the rows.
  static constexpr int shared_bytes(int rows, int) {
    return Tma::ring_bytes + TileRows * HeadDim * 2 + stats_bytes + (2 * Stages + 2) * 8 + rows * HeadDim * 4 +
           kMaxCluster * 16;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <typename T, int HeadDim, int TileRows, int Warps>
struct ClusterWorker : Rows<T, HeadDim, Warps, 1, TileRows> {
  using Base = Rows<T, HeadDim, Warps, 1, TileRows>;
  using Base::Base;
  using Base::head, Base::row_block, Base::row_count;
  using Base::pitch, Base::p, Base::merge, Base::merge_stats, Base::warp, Base::lane;

  int columns;            // elements of all rows that each thread block of the cluster owns
  uint32_t over_columns;  // a reciprocal: the upper half of a product with it is the quotient by `columns`

  // Computes everything that needs no data, before the wait for the grid in front.
  __device__ __forceinline__ void prepare(int sequence, int unit_head, int ranks) {
    Base::take(sequence, unit_head);
    const auto fours = static_cast<unsigned>(row_count * (HeadDim / 4));
    columns = static_cast<int>((fours + static_cast<unsigned>(ranks - 1)) / static_cast<unsigned>(ranks)) * 4;
    over_columns = 0xffffffffu / static_cast<unsigned>(columns) + 1;
  }

  // Bytes that the others send: sums, and for each row the largest score and the sum of the weights.
  __device__ __forceinline__ uint32_t bytes_from_others(int rank, int ranks) const {
    const int count = max(min(columns, row_count * HeadDim - rank * columns), 0);
    return static_cast<uint32_t>((ranks - 1) * (count * 4 + row_count * 8));
  }

  // Over all warps, a row's largest score and sum of weights; and the factor of each warp's sums.
  __device__ __forceinline__ float2 row_stats(int row, float (&factor)[Warps]) const {
    float2 stats[Warps];
    float common = -INFINITY, total = 0.0f;
#pragma unroll
    for (int w = 0; w < Warps; ++w) {
      stats[w] = merge_stats[w * kRows + row];
      common = fmaxf(common, stats[w].x);
    }
#pragma unroll
    for (int w = 0; w < Warps; ++w) {
      factor[w] = part_weight(stats[w].x, common);
      total += factor[w] * stats[w].y;
    }
    return make_float2(common, total);
  }

  // Sends the thread block's part to those who add it: columns to `received` (ranks, share), largest scores and sums of
  // the rows to `received_stats` (ranks, kRows), of each.
  __device__ __forceinline__ void send(float* received, float2* received_stats, uint32_t sent, int rank, int ranks) {
    constexpr int fours = HeadDim / 4;  // of a row: no fewer than there are thread blocks
    static_assert(fours >= kMaxCluster);
    const int thread = warp * 32 + lane;
    float factor[Warps];
#pragma unroll 1
    for (int index = thread; index < row_count * fours; index += Warps * 32) {
      const int row = index / fours, four = index % fours;
      const float2 stats = row_stats(row, factor);
      if (four == rank) {
        received_stats[rank * kRows + row] = stats;
      } else if (four < ranks) {
        ptx::st_async(ptx::mapa(ptx::shared_address(received_stats + rank * kRows + row), four), stats,
                      ptx::mapa(sent, four));
      }
      float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < Warps; ++w) {
        const float4 part = *reinterpret_cast<const float4*>(merge + (w * p.rows + row) * pitch + four * 4);
        value.x += factor[w] * part.x, value.y += factor[w] * part.y;
        value.z += factor[w] * part.z, value.w += factor[w] * part.w;
      }
      const int owner = static_cast<int>(__umulhi(index * 4, over_columns)), place = index * 4 - owner * columns;
      float* const to = received + rank * columns + place;
      if (owner == rank) {
        *reinterpret_cast<float4*>(to) = value;
      } else {
        ptx::st_async(ptx::mapa(ptx::shared_address(to), owner), value, ptx::mapa(sent, owner));
      }
    }
  }

  __device__ __forceinline__ void add(int sequence, const float* received, const float2* received_stats, int rank,
                                      int ranks) const {
    const int first = rank * columns, count = min(columns, row_count * HeadDim - first);
    T* const out = static_cast<T*>(p.out) +
                   (static_cast<int64_t>(sequence * p.kv_heads + head) * p.group_rows + row_block * kRows) * p.head_dim;
#pragma unroll 1
    for (int mine = warp * 32 + lane; mine < count; mine += Warps * 32) {
      const int row = (first + mine) / HeadDim, column = (first + mine) % HeadDim;
      float2 stats[kMaxCluster];
      float part[kMaxCluster], common = -INFINITY, total = 0.0f, value = 0.0f;
#pragma unroll
      for (int r = 0; r < kMaxCluster; ++r) {
        stats[r] = r < ranks ? received_stats[r * kRows + row] : make_float2(-INFINITY, 0.0f);
        part[r] = r < ranks ? received[r * columns + mine] : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < kMaxCluster; ++r) common = fmaxf(common, stats[r].x);
#pragma unroll
      for (int r = 0; r < kMaxCluster; ++r) {
        const float weight = part_weight(stats[r].x, common);
        total += weight * stats[r].y;
        value += weight * part[r];
      }
      if (column < p.head_dim) {
        out[row * p.head_dim + column] = from_float<T>(total == 0.0f ? 0.0f : __fdividef(value, total));
      }
    }
  }
};
#endif

template <typename T, int HeadDim, int TileRows, int Warps, int Stages>
__global__ void __launch_bounds__((Warps + kProducers) * 32, HeadDim <= 128 ? 2 : 1)
    cluster_decode(const __grid_constant__ MmaParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = ClusterShape<HeadDim, TileRows, Warps, Stages>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  uint8_t* const queries = shared_memory + S::ring_bytes;
  float2* const received_stats = reinterpret_cast<float2*>(queries + TileRows * HeadDim * 2);
  uint64_t* const barriers = reinterpret_cast<uint64_t*>(received_stats + kMaxCluster * kRows);
  float* const received = reinterpret_cast<float*>(barriers + 2 * Stages + 2);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const uint32_t ring = ptx::shared_address(shared_memory);
  const uint32_t full = ptx::shared_address(barriers), empty = full + Stages * 8, sent = empty + Stages * 8;
  const int ranks = static_cast<int>(ptx::cluster_nctarank()), rank = static_cast<int>(ptx::cluster_ctarank());
  const int unit = static_cast<int>(blockIdx.x / static_cast<unsigned>(ranks));
  const int sequence = p.batch == 1 ? 0 : unit / p.unit_heads, unit_head = unit - sequence * p.unit_heads;
  float* const merge = reinterpret_cast<float*>(shared_memory);
  float2* const merge_stats = reinterpret_cast<float2*>(merge + merge_floats(Warps, TileRows, HeadDim, TileRows));
  ClusterWorker<T, HeadDim, TileRows, Warps> worker(p, queries, merge, merge_stats, warp, lane);
  worker.prepare(sequence, unit_head, ranks);
  const int producers = cluster_producers(p);
  if (warp == Warps) {
    if (lane == 0) {
      ptx::prefetch_tensormap(&p.k_map);
      ptx::prefetch_tensormap(&p.v_map);
#pragma unroll
      for (int s = 0; s < Stages; ++s) {
        ptx::mbarrier_init(full + s * 8, producers);
        ptx::mbarrier_init(empty + s * 8, Warps * 32);
      }
      ptx::mbarrier_init(sent, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(sent, worker.bytes_from_others(rank, ranks));
    }
    __syncwarp();
  }
  __syncthreads();
  ptx::barrier_cluster_arrive_relaxed();
  ptx::barrier_cluster_wait();  // all have begun

  const int first_key = rank * S::block_keys, step = ranks * S::block_keys;
  const auto produce = [&](auto loader) {
    Pages& pages = loader.pages;
    pages.first = rank, pages.step = ranks;
    const auto taken = [&](int i, int length) { return Cursor{sequence, unit_head, rank + i * ranks, 0, length}; };
    const bool paged = p.block_table != nullptr;
    const int32_t* const entry = paged ? pages.entry(p, sequence, lane) : nullptr;
    const int32_t* const entry_after = paged ? pages.entry(p, sequence, 32 + lane) : nullptr;
    if (entry != nullptr) ptx::prefetch_l2(entry);
    if (entry_after != nullptr) ptx::prefetch_l2(entry_after);
    const int found = guess_of_length(p, sequence);
    int issued = 0, stage = 0, key = first_key;
    if (!paged) loader.prepare(taken(0, first_key + S::block_keys), 0);
    ptx::griddepcontrol_wait();
    if (paged) pages.begin(sequence, entry, entry_after);  // while the length is on its way

    uint32_t phase = 0;
    const auto load = [&] {
      loader.load(ring + stage * S::stage_bytes, full + stage * 8);
      if (++stage == Stages) stage = 0, phase ^= 1;
      ++issued;
      key += step;
    };
    if (!paged) {
#pragma unroll 1
      while (issued < Stages && key < found) {
        load();
        loader.prepare(taken(issued, key + S::block_keys), issued);
      }
    }
    const int length = length_of(p, sequence), early = issued;
#pragma unroll 1
    while (key < length) {
      loader.prepare(taken(issued, length), issued);
      ptx::mbarrier_wait(empty + stage * 8, phase ^ 1);
      load();
    }
    ptx::griddepcontrol_launch_dependents();
    // Blocks that were loaded but are behind the length must arrive before the ring's memory is used for the sums.
    key = first_key;
#pragma unroll 1
    for (int s = 0; s < early; ++s, key += step) {
      if (key >= length) ptx::mbarrier_wait(full + s * 8, 0);
    }
    __syncwarp();
  };
  if (warp >= Warps) {
    if (producers == 1) {  // and it is the only one there
      produce(Loader<S, true>(p, lane));
    } else {
      produce(Loader<S, false>(p, lane, warp > Warps));
    }
  } else {
    const int in_stage = tile_in_stage<S>(p, warp), before = warp * kTileKeys;
    if (p.prefetch > 0) {
      const int guess = guess_of_length(p, sequence);
#pragma unroll 1
      for (int i = 0; i < p.prefetch; ++i) {
        ask_l2<S>(p, Cursor{sequence, unit_head, rank + i * ranks, 0, guess}, threadIdx.x);
      }
      // In pages, for a line of each block after them: what it takes to find those in memory is done by then.
      const int key = first_key + (p.prefetch + static_cast<int>(threadIdx.x / 2)) * step;
      if (p.block_table != nullptr && key < guess) {
        const uint16_t* const row = guess_of_row(p, sequence, unit_head, key, threadIdx.x % 2 != 0);
        if (row != nullptr) ptx::prefetch_l2(row);
      }
    }
    ptx::griddepcontrol_wait();
    const int found = __ldcg(p.cache_lens + sequence * p.lens_stride);
    worker.load_queries();
    const int length = min(max(found, 0), p.capacity);
    int stage = 0;
    uint32_t phase = 0;
    consume<S>(worker, shared_memory, full, stage, phase, length - first_key - before, -before, step, in_stage, lane);
  }
  __syncthreads();  // nothing lands in the ring any more, and nobody reads it
  if (warp < Warps) {
    const float tops[2] = {worker.top(0), worker.top(1)};
    worker.store_sums(warp, tops);
  }
  __syncthreads();
  if (warp < Warps) worker.send(received, received_stats, sent, rank, ranks);
  __syncthreads();
  ptx::mbarrier_wait_cluster(sent, 0);  // nobody sends to this thread block any more: it may end
  if (warp < Warps) worker.add(sequence, received, received_stats, rank, ranks);
#endif
}

}  // namespace cuda_llm_ops::cuda::decode
