// The ring of stages that TMA fills with blocks of keys and values, for tma.cuh and cluster.cuh.
//
//   stage       Keys, then values; each is head_dim / 64 panels of block_keys rows. full[stage]: the bytes have
//               arrived. empty[stage]: every consumer has read them.
//   box         One copy: all columns of p.box_rows keys. That is a whole block, or less where pages are smaller. (64
//               columns, where head_dim is smaller than the instance's.) Boxes follow each other in a stage, each panel
//               after panel.
//               For wide.cuh, a copy is 64 columns wherever a block is several, and all boxes of a panel come
//               before the next panel: wgmma reads keys at one stride.
//   Pages       finds the pages of the boxes, 32 at a time, ahead of their use.
//   Loader      is a producer warp: it fills stages.
//   consume()   is a consumer warp: it computes on its keys of each stage and gives the stage back.
//   ask_l2()    prefetches a block into L2 by a guess of the lengths and pages, while the grid in front still runs.
#pragma once

#include <cstdint>

#include "../../ptx/cluster.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/tma.cuh"
#include "wide.cuh"
#include "worker.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int TileRows, int Warps, int Stages, int Groups, bool Wide = false>
struct TmaShape {
  static constexpr bool wide = Wide;
  static constexpr int stages = Stages, tile_rows = TileRows;
  static constexpr int warps = Groups * Warps + kProducers;
  static constexpr int panels = HeadDim / 64;
  static constexpr int block_keys = Wide ? kWideKeys : Warps * kTileKeys;
  static constexpr int panel_bytes = block_keys * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys, or of values
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int ring_bytes = Stages * stage_bytes;

  static constexpr int pair_bytes = Groups == 2 ? ClusterPair<HeadDim>::bytes : 0;

  // Of a group's queries, and of its merge.
  static constexpr int queries_bytes = query_bytes(HeadDim, TileRows);
  __host__ __device__ static constexpr int sums_bytes(int rows) {
    return Wide ? wide_merge_bytes(HeadDim, TileRows, Warps)
                : merge_floats(merge_slots(Warps, rows, Groups), rows, HeadDim, TileRows) * 4;
  }
  __host__ __device__ static constexpr int merge_bytes(int rows) {
    return sums_bytes(rows) + (Wide ? wide_stats_bytes(TileRows, Warps) : Warps * kRows * 8);
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

// A producer warp: it copies keys and values, or one of them. If a block is one box of each, one lane copies; otherwise
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
    place = (values ? S::tile_bytes : 0) +
            (S::wide ? panel * S::panel_bytes + box * p.box_rows * 128 : (box * S::panels + panel) * p.box_rows * 128);
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

// The address of a row of the cache, by the page that is found before the wait; nullptr if that is no page.
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
  if (key >= at.length || thread >= 2 * S::block_keys) return;
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

// The same for a warpgroup's 64 values, which all its threads clear.
template <typename S, typename W>
__device__ __forceinline__ void clear_wide_values(const W& worker, uint8_t* values, int left) {
  const int thread = worker.warp_of_group() * 32 + worker.lane;
#pragma unroll 1
  for (int chunk = thread; chunk < (kWideKeys - left) * S::panels * 8; chunk += 128) {
    const int row = left + chunk / (S::panels * 8), place = chunk % (S::panels * 8);
    *reinterpret_cast<uint4*>(values + place / 8 * S::panel_bytes + row * 128 + place % 8 * 16) =
        make_uint4(0u, 0u, 0u, 0u);
  }
  ptx::fence_proxy_async_shared();
  worker.meet_group();
}

// consume() below, for the rows of wide.cuh. `scales`: of the warpgroup's first key in stage 0, where tokens have them.
template <typename S, typename W>
__device__ __forceinline__ void consume_wide(W& worker, uint8_t* ring, const float* scales, int stage_scales,
                                             uint32_t full, int& stage, uint32_t& phase, int left, int end) {
  const int in_stage = worker.first_key() * 128;
  uint32_t owed = 0, loaded = 0;  // empty[] of the stage before, which its products still read
  const auto settle = [&] {
    worker.end_products();
    if (owed != 0) ptx::mbarrier_arrive(owed | (loaded & worker.p.zero));
    owed = 0;
  };
  const auto next = [&](uint32_t bits) {
    owed = full + (S::stages + stage) * 8, loaded = bits;
    if (++stage == S::stages) stage = 0, phase ^= 1;
    left -= S::block_keys;
    if constexpr (!W::overlaps) settle();
  };
  const int whole = max(kWideKeys + worker.p.seq_q - 1, end + 1);
#pragma unroll 1
  while (left >= whole) {
    const uint32_t keys = ptx::shared_address(ring) + stage * S::stage_bytes + in_stage;
    ptx::mbarrier_wait(full + stage * 8, phase);
    next(worker.template tile<true>(keys, keys + S::tile_bytes, S::panel_bytes, scales + stage * stage_scales, 0,
                                    settle));
  }
#pragma unroll 1
  while (left > end) {
    const int offset = stage * S::stage_bytes + in_stage;
    const uint32_t keys = ptx::shared_address(ring) + offset;
    ptx::mbarrier_wait(full + stage * 8, phase);
    if (left > 0) {
      if (left < kWideKeys) clear_wide_values<S>(worker, ring + offset + S::tile_bytes, left);
      next(worker.template tile<false>(keys, keys + S::tile_bytes, S::panel_bytes, scales + stage * stage_scales, left,
                                       settle));
    } else {
      settle();
      next(0);
    }
  }
  settle();
}

// A warp's part of the blocks that come through the ring, from `stage` on, which moves past them. `left` is the number
// of keys from the warp's first key in the block to the end of the length; it is negative if the warp has no key there.
// It shrinks by `step` from block to block, and the last block is the last one with more than `end` left.
//
// An mbarrier arrival does not wait for earlier loads from shared memory, and the compiler may move it in front of the
// products that do. So the address of the arrival that gives a stage back depends on what was loaded.
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

}  // namespace cuda_llm_ops::cuda::decode
