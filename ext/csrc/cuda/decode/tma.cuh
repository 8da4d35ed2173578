// Decode with TMA (Hopper): two producer warps, of keys and of values, fill a ring of blocks, which all other warps work
// on together.
//
//   ring        stage: keys, values; each head_dim / 64 panels of block_keys rows. full[stage]: the bytes have arrived.
//               empty[stage]: every consumer has read it.
//   groups      Of warps that compute: one, or two that take the units of the range in turn, so that one merges and
//               loads queries while the other keeps the ring going. turns[group]: it has read all of its unit.
//   boxes       A copy is all columns of p.box_rows keys: the block's, or fewer where pages are smaller. (64 columns,
//               where head_dim is not the instance's.) In a stage they follow each other, each panel after panel.
//   early       With one group two thread blocks fit on a multiprocessor at head_dim 128: the loads of one hide the
//               start and the end of the other, of this grid or, since the kernel lets the next one start early
//               (griddepcontrol), of that. While it waits for the grid before it, a thread block finds its range and
//               may ask L2 for its first blocks of keys, by the lengths and pages that it finds: a guess, since that
//               grid may still write them, and all are read again after the wait.
//   order       The unit at the end of a range comes first, then the others from the range's start on: the parts of
//               both units that other ranges share are written early, and the thread block ends with a unit of its own,
//               which costs no trips to L2, where it has one.
//   heads       Where a token's heads lie side by side in memory, neighbouring thread blocks read the same tokens of all
//               heads (ByHead): what is near in memory is asked for at nearly the same time.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/tma.cuh"
#include "worker.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages, int Groups>
struct TmaShape {
  static constexpr int stages = Stages, tile_rows = TileRows;
  static constexpr int warps = Groups * Warps + kProducers;
  static constexpr int panels = HeadDim / 64;
  static constexpr int block_keys = Warps * kTileKeys;
  static constexpr int panel_bytes = block_keys * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys, or of values
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int ring_bytes = Stages * stage_bytes;

  static constexpr int pair_bytes = Groups == 2 ? Pair<HeadDim>::bytes : 0;

  // Of a group's queries, and of its merge.
  static constexpr int queries_bytes = query_bytes(HeadDim, TileRows);
  __host__ __device__ static constexpr int merge_bytes(int rows) {
    return merge_floats(merge_slots(Warps, rows, Groups), rows, HeadDim, TileRows) * 4 + Warps * kRows * 8;
  }

  static constexpr int shared_bytes(int rows, int batch) {
    return ring_bytes + Groups * (queries_bytes + merge_bytes(rows)) + pair_bytes + (2 * Stages + Groups + 1) * 8 +
           list_integers(1, warps, batch) * 4;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The pages of the boxes that the thread block takes of a sequence, a lane each, and of the 32 boxes after them. Block
// i of those that it takes of a unit is block first + i * step of the unit.
struct Pages {
  int first = 0, step = 1;
  int sequence = -1, base = 0, next = 0, mine = 0, after = 0;

  // Of a sequence; most often a page is a box, and a division as long as a copy's way.
  static __device__ __forceinline__ int page_of_box(const MmaParameters& p, int box) {
    if (p.page_boxes == 1) return box;
    return static_cast<int>(static_cast<unsigned>(box) / static_cast<unsigned>(p.page_boxes));
  }

  // The entry of a box. As far as the table goes, not the length: both can be on their way at once.
  __device__ __forceinline__ const int32_t* entry(const MmaParameters& p, int of, int taken) const {
    const int box = ((first + (taken >> p.box_shift) * step) << p.box_shift) + (taken & ((1 << p.box_shift) - 1));
    const int page = page_of_box(p, box);
    return page < p.table_pages ? p.block_table + of * p.table_stride_batch + page * p.table_stride_page : nullptr;
  }

  static __device__ __forceinline__ int look_up(const int32_t* at) { return at != nullptr ? __ldcg(at) : -1; }

  // The first 64 boxes.
  __device__ __forceinline__ void begin(int of, const int32_t* at, const int32_t* at_after) {
    sequence = of, base = 0, next = 32;
    mine = look_up(at);
    after = look_up(at_after);
  }

  // Makes `mine` hold those from box `taken` (a multiple of the boxes of a block, which divide 32) / 32 * 32 on.
  __device__ __forceinline__ void reach(const MmaParameters& p, const Cursor& at, int taken, int lane) {
    const int wanted = taken / 32 * 32;
    if (sequence == at.sequence && base == wanted) return;
    const bool known = sequence == at.sequence && wanted == next;
    sequence = at.sequence;
    base = wanted;
    mine = known ? after : look_up(entry(p, sequence, wanted + lane));
    next = (wanted + 32) * p.box_rows < at.length ? wanted + 32 : 0;  // the next head begins with the same pages
    after = look_up(entry(p, sequence, next + lane));
  }
};

// What a producer warp copies: keys and values, or one of them. Where a block is one box of each, one lane copies; else
// each lane has a box. All that a block's copies need is made ready before there is room for it: a stage that waits for
// arithmetic is not on its way.
template <typename S, bool Both>
struct Loader {
  const MmaParameters& p;
  const int lane;
  const bool single;
  Pages pages;
  bool values, has_box = false;  // with a box a lane: which
  int box = 0, column = 0, place = 0;
  int slot = 0, head = 0, page = 0;  // of the block that is ready
  bool ready = false;
  uint32_t bytes = 0;

  __device__ __forceinline__ Loader(const MmaParameters& p_, int lane_, bool values_ = false)
      : p(p_), lane(lane_), single(p_.box_shift == 0 && p_.box_panels == 1), values(values_) {
    static_assert(2 * S::panels * (S::block_keys / kTileKeys) <= 32);
    if (single) return;
    const int of_each = p.box_panels << p.box_shift, index = Both && lane >= of_each ? lane - of_each : lane;
    if (Both) values = lane >= of_each;
    has_box = index < of_each;
    box = index & ((1 << p.box_shift) - 1);
    const int panel = index >> p.box_shift;
    column = panel * 64;
    place = (values ? S::tile_bytes : 0) + (box * S::panels + panel) * p.box_rows * 128;
  }

  // Makes ready block i of those taken.
  __device__ __forceinline__ void prepare(const Cursor& at, int i) {
    const int first = at.block * S::block_keys, keys = min(at.length - first, S::block_keys);
    const int key = first + box * p.box_rows;
    bytes = static_cast<uint32_t>((keys + p.box_rows - 1) & -p.box_rows) * ((Both ? 2 : 1) * S::panels * 128);
    ready = has_box && key < at.length;
    head = p.row_blocks == 1 ? at.head : at.head / p.row_blocks;
    slot = key, page = at.sequence;
    if (p.block_table != nullptr) {
      pages.reach(p, at, i << p.box_shift, lane);
      page = __shfl_sync(kAllLanes, pages.mine, ((i << p.box_shift) + box) % 32);
      const int of_sequence = (at.block << p.box_shift) + box;
      slot = (of_sequence - Pages::page_of_box(p, of_sequence) * p.page_boxes) * p.box_rows;
    }
  }

  // Fills a stage with it.
  __device__ __forceinline__ void load(uint32_t stage, uint32_t full) const {
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(full, bytes);
    if (single) {
      if (lane == 0) {
        if (Both || !values) ptx::tma_load_5d(stage, &p.k_map, full, 0, slot, 0, head, page, p.policy);
        if (Both || values) ptx::tma_load_5d(stage + S::tile_bytes, &p.v_map, full, 0, slot, 0, head, page, p.policy);
      }
    } else {
      __syncwarp();
      if (ready) {
        ptx::tma_load_5d(stage + place, values ? &p.v_map : &p.k_map, full, column, slot, 0, head, page, p.policy);
      }
    }
    __syncwarp();
  }
};

// Where a row of the cache is, by the page that is found before the wait; nullptr where that is none.
__device__ __forceinline__ const uint16_t* guess_of_row(const MmaParameters& p, int sequence, int unit_head, int key,
                                                        bool values) {
  const int head = p.row_blocks == 1 ? unit_head : unit_head / p.row_blocks;
  int64_t page = sequence;
  int slot = key;
  if (p.block_table != nullptr) {
    const int of_sequence = static_cast<int>(static_cast<unsigned>(key) / static_cast<unsigned>(p.page_size));
    page = __ldcg(p.block_table + sequence * p.table_stride_batch + of_sequence * p.table_stride_page);
    slot = key - of_sequence * p.page_size;
    if (page < 0 || page >= p.num_pages) return nullptr;
  }
  const CacheStrides& stride = values ? p.v_stride : p.k_stride;
  return static_cast<const uint16_t*>(values ? p.v : p.k) + page * stride.page + slot * stride.slot +
         head * stride.head;
}

// Asks L2 for a block of keys and their values, a row for each of 32 threads a warp: by the load path, since the copy
// engine takes as long to ask as to load. The length is a guess, too.
template <typename S>
__device__ __forceinline__ void ask_l2(const MmaParameters& p, const Cursor& at, int thread) {
  const int key = at.block * S::block_keys + thread % S::block_keys;
  if (key >= at.length) return;
  const uint16_t* const row = guess_of_row(p, at.sequence, at.head, key, thread >= S::block_keys);
#pragma unroll
  for (int column = 0; column < S::panels * 64; column += 64) {
    if (row != nullptr && column < p.head_dim) ptx::prefetch_l2(row + column);
  }
}

// Where a warp's keys lie in a stage: box after box, in each panel after panel.
template <typename S>
__device__ __forceinline__ int tile_in_stage(const MmaParameters& p, int warp) {
  const int key = warp * kTileKeys, box = key / p.box_rows;
  return box * S::panels * p.box_rows * 128 + (key - box * p.box_rows) * 128;
}

// Clears a warp's values behind the length, of which `left` keys are within it: a weight of 0 would not hide a NaN.
template <typename S>
__device__ __forceinline__ void clear_values(uint8_t* values, int panel_bytes, int left, int lane) {
#pragma unroll 1
  for (int chunk = lane; chunk < (kTileKeys - left) * S::panels * 8; chunk += 32) {
    const int row = left + chunk / (S::panels * 8), place = chunk % (S::panels * 8);
    *reinterpret_cast<uint4*>(values + place / 8 * panel_bytes + row * 128 + place % 8 * 16) =
        make_uint4(0u, 0u, 0u, 0u);
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

// A warp's part of the blocks that come through the ring, from `stage` on, which moves past them. `left` keys are
// within the length from the warp's first in the first block on (none of its own where that is negative), and `step`
// fewer from each next; the blocks end where no more than `end` would be.
//
// An arrival does not wait for loads from shared memory before it, and the compiler may move it before the products
// that do: that which gives a stage back takes its address from what was loaded.
template <typename S, typename W>
__device__ __forceinline__ void consume(W& worker, uint8_t* ring, uint32_t full, int& stage, uint32_t& phase, int left,
                                        int end, int step, int in_stage, int lane) {
  const int panel_bytes = worker.p.box_rows * 128;
  const auto release = [&](uint32_t loaded) {
    ptx::mbarrier_arrive((full + (S::stages + stage) * 8) | (loaded & worker.p.zero));  // empty[stage]
    if (++stage == S::stages) stage = 0, phase ^= 1;
    left -= step;
  };
  if constexpr (S::tile_rows == kFewRows) {
    const int whole = max(kTileKeys + worker.p.seq_q - 1, end + 1);
#pragma unroll 1
    while (left >= whole) {
      const uint32_t keys = ptx::shared_address(ring) + stage * S::stage_bytes + in_stage;
      ptx::mbarrier_wait(full + stage * 8, phase);
      release(worker.template tile<true>(keys, keys + S::tile_bytes, panel_bytes, 0));
    }
  }
#pragma unroll 1
  while (left > end) {
    const int offset = stage * S::stage_bytes + in_stage;
    const uint32_t keys = ptx::shared_address(ring) + offset;
    uint32_t loaded = 0;
    ptx::mbarrier_wait(full + stage * 8, phase);
    if (left > 0) {
      if (left < kTileKeys) clear_values<S>(ring + offset + S::tile_bytes, panel_bytes, left, lane);
      if constexpr (S::tile_rows == kFewRows) {
        loaded = worker.template tile<false>(keys, keys + S::tile_bytes, panel_bytes, left);
      } else {
        loaded = worker.tile(keys, keys + S::tile_bytes, panel_bytes, left);
      }
    }
    release(loaded);
  }
}
#endif

template <typename T, int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool ByHead>
__global__ void __launch_bounds__((Groups * Warps + kProducers) * 32, HeadDim <= 128 && Groups == 1 ? 2 : 1)
    tma_decode(const __grid_constant__ MmaParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = TmaShape<HeadDim, TileRows, Warps, Stages, Groups>;
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
  const bool pairs = Groups == 2 && ptx::cluster_nctarank() == 2;

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
      if (pairs) ptx::mbarrier_arrive_expect_tx(sent, Pair<HeadDim>::bytes_from_other(p.rows));
    }
    __syncwarp();
  }
  // What a thread block does follows from the lengths. Few of them are read before the wait, too, and all is made of
  // them then; after it, they need but be the same. One warp looks: all of them would ask the same line of L2.
  const bool few = p.batch <= kFewSequences;
  Lists lists{};
  Cut cut;
  // Where heads lie side by side, so do those that read the same keys of each: a row of memory is asked for at once.
  const auto range = [&]() -> int {
    if constexpr (!ByHead) return blockIdx.x;
    return blockIdx.x % p.by_head * (gridDim.x / p.by_head) + blockIdx.x / p.by_head;
  };
  int start = 0, count = 0;  // of the range
  Cursor at{};               // the unit at its end comes first, with so many blocks: what is added to other ranges'
  int in_last = 0;           // parts is not what the thread block ends with, where it has whole units
  const auto place = [&] {
    cut = Cut(lists.total * p.unit_heads, gridDim.x);
    start = cut.start(range()), count = cut.start(range() + 1) - start;
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
          reinterpret_cast<float2*>(merge + merge_floats(merge_slots(Warps, p.rows, Groups), p.rows, HeadDim, TileRows));
      uint8_t* const queries = shared_memory + S::ring_bytes + group * S::queries_bytes;
      Worker<T, HeadDim, Warps, Groups, TileRows, ByHead> worker(p, lists, cut, queries, merge, merge_stats, in_block,
                                                                 lane);
      if (pairs) worker.pair = {reinterpret_cast<float*>(pair_sums), sent};
      const int in_stage = tile_in_stage<S>(p, in_block);
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
          if (Groups > 1 && piece > 0) ptx::mbarrier_wait(turns + (1 - group) * 8, (piece - 1) / Groups & 1);
          const int left = at.length - at.block * S::block_keys - in_block * kTileKeys;
          consume<S>(worker, shared_memory, full, stage, phase, left,
                     max(left - blocks * S::block_keys, -in_block * kTileKeys), S::block_keys, in_stage, lane);
          if (Groups > 1) ptx::mbarrier_arrive(turns + group * 8);
          worker.finish(at);
        }
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
  zero_empty<T, S::warps * 32>(p, lists);
#endif
}

}  // namespace cuda_llm_ops::cuda::decode
