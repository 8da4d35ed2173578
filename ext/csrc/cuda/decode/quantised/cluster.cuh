// Decode of small 8-bit caches with TMA and clusters (Hopper): the kernel of ../mma/cluster.cuh with the ring and the
// rows of this folder. Its way, early start and parts are described there.
#pragma once

#include "../../ptx/cluster.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../mma/cluster.cuh"
#include "ring.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages>
struct QuantisedClusterShape : QuantisedShape<HeadDim, TileRows, Warps, Stages, 1> {
  using Shape = QuantisedShape<HeadDim, TileRows, Warps, Stages, 1>;
  static constexpr int stats_bytes = kMaxCluster * kRows * 8;
  static_assert(merge_floats(Warps, TileRows, HeadDim, TileRows) * 4 + Warps * kRows * 8 <= Shape::ring_bytes);

  // Whole shares of four columns may be a little more than the rows.
  static constexpr int shared_bytes(int rows, int) {
    return Shape::ring_bytes + Shape::queries_bytes + Shape::scale_bytes + stats_bytes + (2 * Stages + 2) * 8 +
           rows * HeadDim * 4 + kMaxCluster * 16;
  }
};

// Thread blocks of a multiprocessor: 16 rows with rests need the registers of two.
template <typename T, int TileRows>
inline constexpr int kClusterBlocks = TileRows == kRows && kRests<typename T::Out> ? 1 : 2;

template <typename T, int HeadDim, int TileRows, int Warps, int Stages>
__global__ void __launch_bounds__((Warps + kProducers) * 32, kClusterBlocks<T, TileRows>)
    quantised_cluster_decode(const __grid_constant__ QuantisedParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = QuantisedClusterShape<HeadDim, TileRows, Warps, Stages>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  uint8_t* const queries = shared_memory + S::ring_bytes;
  float* const scales = reinterpret_cast<float*>(queries + S::queries_bytes);
  float2* const received_stats = reinterpret_cast<float2*>(scales + Stages * S::stage_scales);
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
        ptx::mbarrier_init(full + s * 8, arrivals_of_stage(p, producers));
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
    const auto load = [&](int end) {
      loader.load(ring + stage * S::stage_bytes, full + stage * 8);
      if (p.token_scales != 0) {
        load_scales(p, loader, end - key, scales + stage * S::stage_scales, full + stage * 8);
      }
      if (++stage == Stages) stage = 0, phase ^= 1;
      ++issued;
      key += step;
    };
    if (!paged) {
#pragma unroll 1
      while (issued < Stages && key < found) {
        load(p.capacity);
        loader.prepare(taken(issued, key + S::block_keys), issued);
      }
    }
    const int length = length_of(p, sequence), early = issued;
#pragma unroll 1
    while (key < length) {
      loader.prepare(taken(issued, length), issued);
      ptx::mbarrier_wait(empty + stage * 8, phase ^ 1);
      load(length);
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
    const int before = warp * kWarpKeys;
    if (p.prefetch > 0) {
      const int guess = guess_of_length(p, sequence);
#pragma unroll 1
      for (int i = 0; i < p.prefetch; ++i) {
        ask_l2_quantised<S>(p, Cursor{sequence, unit_head, rank + i * ranks, 0, guess}, threadIdx.x, Warps * 32);
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
    consume_quantised<S>(worker, shared_memory, scales + before, full, stage, phase, length - first_key - before,
                         -before, step, warp, lane);
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
