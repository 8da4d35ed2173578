// Decode of 8-bit caches with TMA (Hopper): the kernel of ../mma/tma.cuh with the ring and the rows of this folder. Its
// way, groups and order are described there.
#pragma once

#include <type_traits>

#include "../../ptx/griddepcontrol.cuh"
#include "ring.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool Wide>
struct QuantisedTmaShape : QuantisedShape<HeadDim, TileRows, Warps, Stages, Groups, Wide> {
  using Shape = QuantisedShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>;
  static constexpr int pair_bytes = Groups == 2 ? ClusterPair<HeadDim>::bytes : 0;

  static constexpr int shared_bytes(int rows, int batch) {
    return Shape::ring_bytes + Shape::scale_bytes + Groups * (Shape::queries_bytes + Shape::merge_bytes(rows)) +
           pair_bytes + (2 * Stages + Groups + 1) * 8 + list_integers(1, Shape::warps, batch) * 4;
  }
};

template <typename T, int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool Wide>
__global__ void __launch_bounds__((Groups * Warps + kProducers) * 32, 1)
    quantised_tma_decode(const __grid_constant__ QuantisedParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = QuantisedTmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>;
  using RowsOfUnit =
      std::conditional_t<Wide, WideRows<T, HeadDim, Warps, TileRows>, Rows<T, HeadDim, Warps, Groups, TileRows>>;
  constexpr int all_warps = Groups * Warps;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  float* const scales = reinterpret_cast<float*>(shared_memory + S::ring_bytes + Groups * S::queries_bytes);
  uint8_t* const merges = reinterpret_cast<uint8_t*>(scales) + S::scale_bytes;
  uint8_t* const pair_sums = merges + Groups * S::merge_bytes(p.rows);
  uint64_t* const barriers = reinterpret_cast<uint64_t*>(pair_sums + S::pair_bytes);
  int2* const list_room = reinterpret_cast<int2*>(barriers + 2 * Stages + Groups + 1);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const uint32_t ring = ptx::shared_address(shared_memory);
  const uint32_t full = ptx::shared_address(barriers), empty = full + Stages * 8, turns = empty + Stages * 8;
  const uint32_t sent = turns + Groups * 8;
  const bool pairs = (Groups == 2 || Wide) && ptx::cluster_nctarank() == 2;

  if (warp == all_warps) {
    if (lane == 0) {
      ptx::prefetch_tensormap(&p.k_map);
      ptx::prefetch_tensormap(&p.v_map);
#pragma unroll
      for (int s = 0; s < Stages; ++s) {
        ptx::mbarrier_init(full + s * 8, arrivals_of_stage(p, kProducers));
        ptx::mbarrier_init(empty + s * 8, Warps * 32);
      }
#pragma unroll
      for (int g = 0; g < Groups; ++g) ptx::mbarrier_init(turns + g * 8, Warps * 32);
      ptx::mbarrier_init(sent, 1);
      ptx::fence_mbarrier_init();
      if (pairs && !Wide) ptx::mbarrier_arrive_expect_tx(sent, ClusterPair<HeadDim>::bytes_from_other(p.rows));
    }
    __syncwarp();
  }
  // Which blocks a thread block takes follows from the lengths. If they are few, they are also read before the wait,
  // and everything is computed from them then. After the wait, one warp checks that they are still the same: all warps
  // would ask L2 for the same line.
  const bool few = p.batch <= kFewSequences;
  Lists lists{};
  Partition partition;
  // The range, and where the thread block begins: with the unit at the range's end, of which it has `in_last` blocks.
  // Then it goes through the range from its start. So it does not end with a part that other ranges wait for, if it has
  // whole units.
  int start = 0, count = 0;
  Cursor at{};
  int in_last = 0;
  const auto place = [&] {
    partition = Partition(lists.total * p.unit_heads, gridDim.x);
    start = partition.start(static_cast<int>(blockIdx.x)),
    count = partition.start(static_cast<int>(blockIdx.x) + 1) - start;
    if (count == 0) return;
    at = cursor_at<S::block_keys>(p, lists, start + count - 1);
    in_last = min(at.block + 1, count);
    at.block -= in_last - 1;
  };
  if (few) {
    if (warp == 0) make_few_lists<S::block_keys, true>(p, list_room, lane);
  } else if (p.prefetch > 0) {
    lists = make_lists<S::warps, S::block_keys>(p, list_room, warp, lane);
    place();
  }
  __syncthreads();
  if (pairs) {
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();  // both have begun
  }
  ptx::griddepcontrol_launch_dependents();
  if (few) {
    lists = few_lists<S::block_keys>(p, list_room);
    place();
  }
  if (warp < all_warps) {
    const int group = warp / Warps;
    Cursor ahead = at;
#pragma unroll 1
    for (int i = 0; i < min(count, p.prefetch); ++i) {
      if (i % Groups == group) ask_l2_quantised<S>(p, ahead, threadIdx.x - group * Warps * 32, Warps * 32);
      if (i == in_last - 1) {
        ahead = cursor_at<S::block_keys>(p, lists, start);
      } else {
        advance<S::block_keys>(p, lists, ahead);
      }
    }
  }
  if (!few && p.prefetch > 0) __syncthreads();  // the lists' room is used again
  ptx::griddepcontrol_wait();
  if (!few) {
    lists = make_lists<S::warps, S::block_keys>(p, list_room, warp, lane);
    place();
  } else if (__syncthreads_and(warp > 0 || few_lists_right(p, lists, lane)) == 0) {
    if (warp == 0) make_few_lists<S::block_keys>(p, list_room, lane);
    __syncthreads();
    lists = few_lists<S::block_keys>(p, list_room);
    place();
  }
  bool met = false;
  if (count > 0) {
    int stage = 0;
    uint32_t phase = 0;
    if (warp >= all_warps) {
      Loader<S, false> loader(p, lane, warp > all_warps);
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        loader.prepare(at, at.block);
        ptx::mbarrier_wait(empty + stage * 8, phase ^ 1);
        loader.load(ring + stage * S::stage_bytes, full + stage * 8);
        if (p.token_scales != 0) {
          load_scales(p, loader, at.length - at.block * S::block_keys, scales + stage * S::stage_scales,
                      full + stage * 8);
        }
        if (i == in_last - 1) {
          at = cursor_at<S::block_keys>(p, lists, start);
        } else {
          advance<S::block_keys>(p, lists, at);
        }
        if (++stage == Stages) stage = 0, phase ^= 1;
      }
    } else {
      const int group = warp / Warps, in_block = warp - group * Warps;
      float* const merge = reinterpret_cast<float*>(merges + group * S::merge_bytes(p.rows));
      float2* const merge_stats =
          reinterpret_cast<float2*>(merges + group * S::merge_bytes(p.rows) + S::sums_bytes(p.rows));
      uint8_t* const queries = shared_memory + S::ring_bytes + group * S::queries_bytes;
      Worker<T, HeadDim, Warps, Groups, TileRows, false, RowsOfUnit> worker(p, lists, partition, queries, merge,
                                                                            merge_stats, in_block, lane);
      const int first_key = Wide ? in_block / 4 * kWideKeys : in_block * kWarpKeys;  // of a block, of the warp's
      if (pairs) worker.pair = {reinterpret_cast<float*>(pair_sums), sent};
      int piece = 0, after = count;
#pragma unroll 1
      while (true) {
        const int blocks = min(at.blocks - at.block, piece == 0 ? in_last : after);  // of this unit
        after -= blocks;
        if (Groups > 1 && piece % Groups != group) {
          stage += blocks;
          phase ^= stage / Stages & 1;
          stage %= Stages;
        } else {
          worker.begin(at, static_cast<int>(blockIdx.x));
          if (Wide && after > 0) {
            Cursor then = at;
            if (piece == 0) {
              then = cursor_at<S::block_keys>(p, lists, start);
            } else {
              then.block += blocks - 1;
              advance<S::block_keys>(p, lists, then);
            }
            worker.ask_queries(then.sequence, then.head);
          }
          if (Groups > 1 && piece > 0) ptx::mbarrier_wait(turns + (1 - group) * 8, (piece - 1) / Groups & 1);
          const int left = at.length - at.block * S::block_keys - first_key;
          const int end = max(left - blocks * S::block_keys, -first_key);
          if constexpr (Wide) {
            consume_wide<S>(worker, shared_memory, scales + first_key, S::stage_scales, full, stage, phase, left, end);
          } else {
            consume_quantised<S>(worker, shared_memory, scales + first_key, full, stage, phase, left, end,
                                 S::block_keys, in_block, lane);
          }
          if (Groups > 1) ptx::mbarrier_arrive(turns + group * 8);
          worker.finish(at);
        }
        if (Wide) met = worker.met;
        if (after == 0) break;
        if (piece++ == 0) {
          at = cursor_at<S::block_keys>(p, lists, start);
        } else {
          at.block += blocks - 1;
          advance<S::block_keys>(p, lists, at);
        }
      }
    }
  }
  if (Wide && pairs && !met) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
    }
  }
  zero_empty<T, S::warps * 32>(p, lists);
#endif
}

}  // namespace cuda_llm_ops::cuda::decode
