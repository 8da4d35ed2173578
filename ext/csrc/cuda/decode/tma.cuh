// Decode with TMA (Hopper): one producer warp fills a ring of blocks of keys, which all other warps work on together.
//
//   ring        stage: keys, values; each head_dim / 64 panels of block_keys rows. full[stage]: the bytes have arrived.
//               empty[stage]: every consumer has read it.
//   boxes       A copy is 64 columns of p.box_rows keys: the block's, or fewer where pages are smaller.
//
// Two thread blocks fit on a multiprocessor at head_dim 128: the loads of one hide the start and the end of the other, of
// this grid or, since the kernel lets the next one start early (griddepcontrol), of that.
#pragma once

#include "../ptx/fence.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/tma.cuh"
#include "worker.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int Warps, int Stages>
struct TmaShape {
  static constexpr int panels = HeadDim / 64;
  static constexpr int block_keys = Warps * kTileKeys;
  static constexpr int panel_bytes = block_keys * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys, or of values
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int ring_bytes = Stages * stage_bytes;

  static constexpr int shared_bytes(int rows, int batch) {
    return ring_bytes + query_bytes(HeadDim) + merge_floats(Warps, rows, HeadDim) * 4 + Warps * kRows * 8 +
           2 * Stages * 8 + list_integers(Warps + 1, batch) * 4;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The pages of the sequence that is being read, a lane each, and the 32 after them.
struct Pages {
  int sequence = -1, base = 0, mine = 0, after = 0;

  __device__ __forceinline__ int look_up(const MmaParameters& p, int box, int box_count, int lane) const {
    if (box + lane >= box_count) return -1;
    const int64_t index = static_cast<int64_t>(box + lane) * p.box_rows / p.page_size;
    return __ldcg(p.block_table + sequence * p.table_stride_batch + index * p.table_stride_page);
  }

  // Makes `mine` hold those from box (a multiple of the boxes of a block, which divide 32) / 32 * 32 on.
  __device__ __forceinline__ void reach(const MmaParameters& p, const Cursor& at, int box, int lane) {
    const int wanted = box / 32 * 32;
    if (sequence == at.sequence && base == wanted) return;
    const int box_count = (at.length + p.box_rows - 1) / p.box_rows;
    const bool known = sequence == at.sequence && wanted == base + 32;
    sequence = at.sequence;
    base = wanted;
    mine = known ? after : look_up(p, wanted, box_count, lane);
    after = look_up(p, wanted + 32, box_count, lane);
  }
};

// Fills a stage with a block: a lane a box, first all of the keys, then as many of the values.
template <typename S>
__device__ __forceinline__ void load_block(const MmaParameters& p, const Cursor& at, Pages& pages, uint32_t stage,
                                           uint32_t full, int lane) {
  const int head = p.row_blocks == 1 ? at.head : at.head / p.row_blocks;
  const bool paged = p.block_table != nullptr;
  const int first_key = at.block * S::block_keys, first_box = at.block << p.box_shift;
  const int of_keys = S::panels << p.box_shift, box_bytes = p.box_rows * 128;
  if (paged) pages.reach(p, at, first_box, lane);
  if (lane == 0) {
    const int some = (min(at.length - first_key, S::block_keys) + p.box_rows - 1) / p.box_rows;
    ptx::mbarrier_arrive_expect_tx(full, 2 * S::panels * some * box_bytes);
  }
  __syncwarp();
#pragma unroll 1
  for (int index = lane; index - lane < 2 * of_keys; index += 32) {
    const bool values = index >= of_keys;
    const int box = index & ((1 << p.box_shift) - 1), panel = (index >> p.box_shift) % S::panels;
    const int key = first_key + box * p.box_rows;
    int page = at.sequence, slot = key;
    if (paged) {
      page = __shfl_sync(kAllLanes, pages.mine, (first_box + box) % 32);
      slot = key % p.page_size;
    }
    if (index < 2 * of_keys && key < at.length) {
      ptx::tma_load_4d(stage + (values ? S::tile_bytes : 0) + panel * S::panel_bytes + box * box_bytes,
                         values ? &p.v_map : &p.k_map, full, panel * 64, slot, head, page, p.policy);
    }
  }
}
#endif

template <typename T, int HeadDim, int Warps, int Stages>
__global__ void __launch_bounds__(Warps * 32 + 32, HeadDim <= 128 ? 2 : 1)
    tma_decode(const __grid_constant__ MmaParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = TmaShape<HeadDim, Warps, Stages>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  float* const merge = reinterpret_cast<float*>(shared_memory + S::ring_bytes + query_bytes(HeadDim));
  float2* const merge_stats = reinterpret_cast<float2*>(merge + merge_floats(Warps, p.rows, HeadDim));
  uint64_t* const barriers = reinterpret_cast<uint64_t*>(merge_stats + Warps * kRows);
  int* const list_room = reinterpret_cast<int*>(barriers + 2 * Stages);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const uint32_t ring = ptx::shared_address(shared_memory);
  const uint32_t full = ptx::shared_address(barriers), empty = full + Stages * 8;

  if (warp == Warps) {
    if (lane == 0) {
      ptx::prefetch_tensormap(&p.k_map);
      ptx::prefetch_tensormap(&p.v_map);
#pragma unroll
      for (int s = 0; s < Stages; ++s) {
        ptx::mbarrier_init(full + s * 8, 1);
        ptx::mbarrier_init(empty + s * 8, Warps);
      }
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  const Lists lists = make_lists<Warps + 1, S::block_keys>(p, list_room, warp, lane);
  const Cut cut(lists.total * p.unit_heads, gridDim.x);
  const int start = cut.start(blockIdx.x), count = cut.start(blockIdx.x + 1) - start;
  if (count > 0) {
    Cursor at = cursor_at<S::block_keys>(p, lists, start);
    int stage = 0;
    uint32_t phase = 0;
    if (warp == Warps) {
      Pages pages;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        ptx::mbarrier_wait(empty + stage * 8, phase ^ 1);
        load_block<S>(p, at, pages, ring + stage * S::stage_bytes, full + stage * 8, lane);
        advance<S::block_keys>(p, lists, at);
        if (++stage == Stages) stage = 0, phase ^= 1;
      }
    } else {
      Worker<T, HeadDim, Warps> worker(p, lists, cut, shared_memory + S::ring_bytes, merge, merge_stats, warp, lane);
      bool fresh = true;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        if (fresh) worker.begin(at, blockIdx.x);
        const int key = at.block * S::block_keys + warp * kTileKeys, left = at.length - key;
        const uint32_t keys = stage * S::stage_bytes + warp * kTileKeys * 128, values = keys + S::tile_bytes;
        ptx::mbarrier_wait(full + stage * 8, phase);
        if (left > 0) {
          if (left < kTileKeys) {  // a weight of 0 would not hide a NaN in what lies behind the length
#pragma unroll 1
            for (int chunk = lane; chunk < (kTileKeys - left) * S::panels * 8; chunk += 32) {
              const int row = left + chunk / (S::panels * 8), place = chunk % (S::panels * 8);
              *reinterpret_cast<uint4*>(shared_memory + values + place / 8 * S::panel_bytes + row * 128 +
                                        place % 8 * 16) = make_uint4(0u, 0u, 0u, 0u);
            }
            ptx::fence_proxy_async_shared();
            __syncwarp();
          }
          worker.tile(ring + keys, ring + values, S::panel_bytes, left);
        }
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
        if (++stage == Stages) stage = 0, phase ^= 1;
        fresh = at.block == at.blocks - 1 || i == count - 1;
        if (fresh) worker.finish(at);
        advance<S::block_keys>(p, lists, at);
      }
    }
  }
  zero_empty<T, Warps * 32 + 32>(p, lists);
#endif
}

}  // namespace cuda_llm_ops::cuda::decode
