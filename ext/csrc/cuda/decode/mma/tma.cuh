// Decode with TMA (Hopper): two producer warps, of keys and of values, fill a ring of blocks (tma_ring.cuh), which all
// other warps work on together.
//
//   way         Lengths -> the thread block's range (partition.cuh) -> its units. For each unit the warps call begin(),
//               consume() its blocks, and call finish(), which stores to the workspace or to `out` (worker.cuh).
//   groups      Of warps that compute: one, or two that take the units of the range in turn, so that one merges and
//               loads queries while the other keeps the ring going. turns[group]: it has read all of its unit.
//   early       With one group two thread blocks fit on a multiprocessor at head_dim 128: the loads of one hide the
//               start and the end of the other, of this grid or of the next, which starts early (griddepcontrol). While
//               it waits for the grid in front, a thread block finds its range and may ask L2 for its first blocks of
//               keys. It uses the lengths and pages that it finds. They are a guess, since that grid may still write
//               them, and all are read again after the wait.
//   order       The unit at the end of a range comes first, then the others from the range's start on. So the parts of
//               both units that other ranges share are written early. The thread block ends with a unit of its own, if
//               it has one, which costs no trips to L2.
//   heads       Where a token's heads lie side by side in memory, neighbouring thread blocks read the same tokens of
//               all heads (ByHead): what is near in memory is asked for at nearly the same time.
#pragma once

#include <type_traits>

#include "../../ptx/griddepcontrol.cuh"
#include "tma_ring.cuh"

namespace cuda_llm_ops::cuda::decode {

template <typename T, int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool ByHead, bool Wide>
__global__ void __launch_bounds__((Groups * Warps + kProducers) * 32, HeadDim <= 128 && Groups == 1 && !Wide ? 2 : 1)
    tma_decode(const __grid_constant__ MmaParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = TmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>;
  using RowsOfUnit =
      std::conditional_t<Wide, WideRows<T, HeadDim, Warps, TileRows>, Rows<T, HeadDim, Warps, Groups, TileRows>>;
  constexpr int all_warps = Groups * Warps;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  uint8_t* const merges = shared_memory + S::ring_bytes + Groups * S::queries_bytes;
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
        ptx::mbarrier_init(full + s * 8, kProducers);
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
  // Where heads lie side by side in memory, the thread blocks that read the same keys of different heads are
  // neighbours, so that a row of memory is asked for at once.
  const auto range = [&]() -> int {
    if constexpr (!ByHead) return blockIdx.x;
    return blockIdx.x % p.by_head * (gridDim.x / p.by_head) + blockIdx.x / p.by_head;
  };
  // The range, and where the thread block begins: with the unit at the range's end, of which it has `in_last` blocks.
  // Then it goes through the range from its start. So it does not end with a part that other ranges wait for, if it has
  // whole units.
  int start = 0, count = 0;
  Cursor at{};
  int in_last = 0;
  const auto place = [&] {
    partition = Partition(lists.total * p.unit_heads, gridDim.x);
    start = partition.start(range()), count = partition.start(range() + 1) - start;
    if (count == 0) return;
    at = cursor_at<S::block_keys, ByHead>(p, lists, start + count - 1);
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
      if (i % Groups == group) ask_l2<S>(p, ahead, threadIdx.x - group * Warps * 32);
      if (i == in_last - 1) {
        ahead = cursor_at<S::block_keys, ByHead>(p, lists, start);
      } else {
        advance<S::block_keys, ByHead>(p, lists, ahead);
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
        if (i == in_last - 1) {
          at = cursor_at<S::block_keys, ByHead>(p, lists, start);
        } else {
          advance<S::block_keys, ByHead>(p, lists, at);
        }
        if (++stage == Stages) stage = 0, phase ^= 1;
      }
    } else {
      const int group = warp / Warps, in_block = warp - group * Warps;
      float* const merge = reinterpret_cast<float*>(merges + group * S::merge_bytes(p.rows));
      float2* const merge_stats =
          reinterpret_cast<float2*>(merges + group * S::merge_bytes(p.rows) + S::sums_bytes(p.rows));
      uint8_t* const queries = shared_memory + S::ring_bytes + group * S::queries_bytes;
      Worker<T, HeadDim, Warps, Groups, TileRows, ByHead, RowsOfUnit> worker(p, lists, partition, queries, merge,
                                                                             merge_stats, in_block, lane);
      if (pairs) worker.pair = {reinterpret_cast<float*>(pair_sums), sent};
      const int in_stage = Wide ? 0 : tile_in_stage<S>(p, in_block);
      const int first_key = Wide ? 0 : in_block * kTileKeys;  // of a block, of the warp's
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
          worker.begin(at, range());
          if (Wide && after > 0) {
            Cursor then = at;
            if (piece == 0) {
              then = cursor_at<S::block_keys, ByHead>(p, lists, start);
            } else {
              then.block += blocks - 1;
              advance<S::block_keys, ByHead>(p, lists, then);
            }
            worker.ask_queries(then.sequence, then.head);
          }
          if (Groups > 1 && piece > 0) ptx::mbarrier_wait(turns + (1 - group) * 8, (piece - 1) / Groups & 1);
          const int left = at.length - at.block * S::block_keys - first_key;
          const int end = max(left - blocks * S::block_keys, -first_key);
          if constexpr (Wide) {
            consume_wide<S>(worker, shared_memory, nullptr, 0, full, stage, phase, left, end);
          } else {
            consume<S>(worker, shared_memory, full, stage, phase, left, end, S::block_keys, in_stage, lane);
          }
          if (Groups > 1) ptx::mbarrier_arrive(turns + group * 8);
          worker.finish(at);
        }
        if (Wide) met = worker.met;
        if (after == 0) break;
        if (piece++ == 0) {
          at = cursor_at<S::block_keys, ByHead>(p, lists, start);
        } else {
          at.block += blocks - 1;
          advance<S::block_keys, ByHead>(p, lists, at);
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
