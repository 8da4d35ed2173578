// Decode with cp.async (Ampere, and caches that TMA cannot describe). Keys may lie anywhere: pages may have any size,
// because each row is looked up.
//
//   way         Lengths -> the thread block's range (partition.cuh) -> for each block of keys: fill() copies a warp's
//               16 keys and values into its ring, 16 bytes a lane; tile() computes on them -> finish() at the end of a
//               unit, which stores to the workspace or to `out` (worker.cuh).
//   ring        Each warp has its own, so that no warp waits for another while keys stream.
#pragma once

#include "../../ptx/cp_async.cuh"
#include "worker.cuh"

namespace cuda_llm_ops::cuda::decode {

template <int HeadDim, int Warps, int Stages>
struct CpAsyncShape {
  static constexpr int panels = HeadDim / 64;
  static constexpr int panel_bytes = kTileKeys * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys, or of values
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int ring_bytes = Warps * Stages * stage_bytes;
  static constexpr int block_keys = Warps * kTileKeys;

  static constexpr int shared_bytes(int rows, int batch) {
    return ring_bytes + query_bytes(HeadDim, kRows) + merge_floats(Warps, rows, HeadDim, kRows) * 4 +
           Warps * kRows * 8 + list_integers(Warps, Warps, batch) * 4;
  }
};

// The page in which key lane % 16 of the tile lies.
template <int BlockKeys>
__device__ __forceinline__ int page_of(const MmaParameters& p, const Cursor& at, int warp, int lane) {
  if (p.block_table == nullptr) return at.sequence;
  const int key = at.block * BlockKeys + warp * kTileKeys + lane % kTileKeys;
  if (at.sequence >= p.batch || key >= at.length) return -1;
  return __ldcg(p.block_table + at.sequence * p.table_stride_batch + (key / p.page_size) * p.table_stride_page);
}

template <typename S>
__device__ __forceinline__ void fill(const MmaParameters& p, const Cursor& at, int page, uint32_t stage, int warp,
                                     int lane) {
  const int tile = at.block * S::block_keys + warp * kTileKeys, key = tile + lane % kTileKeys;
  if (tile < at.length) {  // what lies behind the length becomes zeros
    constexpr int chunks = S::panels * 8, steps = kTileKeys * chunks / 32;
    const int slot = p.block_table == nullptr ? key : key % p.page_size, head = at.head / p.row_blocks;
    const bool here = key < at.length && static_cast<unsigned>(page) < static_cast<unsigned>(p.num_pages);
    const int64_t k_mine = here ? page * p.k_stride.page + slot * p.k_stride.slot + head * p.k_stride.head : -1;
    const int64_t v_mine = here ? page * p.v_stride.page + slot * p.v_stride.slot + head * p.v_stride.head : -1;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int id = i * 32 + lane, row = id / chunks, chunk = id % chunks;
      const int64_t k_row = __shfl_sync(kAllLanes, k_mine, row), v_row = __shfl_sync(kAllLanes, v_mine, row);
      const int bytes = k_row >= 0 && chunk * 8 < p.head_dim ? 16 : 0;
      const int64_t k_from = bytes != 0 ? k_row + chunk * 8 : 0, v_from = bytes != 0 ? v_row + chunk * 8 : 0;
      const uint32_t to = stage + chunk / 8 * S::panel_bytes + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
      ptx::cp_async_cg_16(to, static_cast<const uint16_t*>(p.k) + k_from, bytes);
      ptx::cp_async_cg_16(to + S::tile_bytes, static_cast<const uint16_t*>(p.v) + v_from, bytes);
    }
  }
  ptx::cp_async_commit_group();
}

template <typename T, int HeadDim, int Warps, int Stages>
__global__ void __launch_bounds__(Warps * 32, 1) cp_async_decode(const __grid_constant__ MmaParameters p) {
  using S = CpAsyncShape<HeadDim, Warps, Stages>;
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  float* const merge = reinterpret_cast<float*>(shared_memory + S::ring_bytes + query_bytes(HeadDim, kRows));
  float2* const merge_stats = reinterpret_cast<float2*>(merge + merge_floats(Warps, p.rows, HeadDim, kRows));
  int2* const list_room = reinterpret_cast<int2*>(merge_stats + Warps * kRows);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const uint32_t ring = ptx::shared_address(shared_memory) + warp * Stages * S::stage_bytes;

  const Lists lists = p.batch <= kFewSequences
                          ? make_few_lists<S::block_keys>(p, list_room + warp * kFewSequences, lane)
                          : make_lists<Warps, S::block_keys>(p, list_room, warp, lane);
  const Partition partition(lists.total * p.unit_heads, gridDim.x);
  const int start = partition.start(blockIdx.x), count = partition.start(blockIdx.x + 1) - start;
  if (count > 0) {
    Cursor load = cursor_at<S::block_keys>(p, lists, start), at = load;
    int issued = 0, page = page_of<S::block_keys>(p, load, warp, lane);
    // The page of the next tile is looked up while this one is computed: a look-up may wait for memory.
    const auto next = [&](uint32_t stage) {
      if (issued < count) {
        fill<S>(p, load, page, stage, warp, lane);
        advance<S::block_keys>(p, lists, load);
        if (++issued < count) page = page_of<S::block_keys>(p, load, warp, lane);
      } else {
        ptx::cp_async_commit_group();
      }
    };
#pragma unroll 1
    for (int s = 0; s < Stages; ++s) next(ring + s * S::stage_bytes);

    Worker<T, HeadDim, Warps, 1, kRows> worker(p, lists, partition, shared_memory + S::ring_bytes, merge, merge_stats,
                                               warp, lane);
    bool fresh = true;
    int stage = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (fresh) worker.begin(at, blockIdx.x);
      const int key = at.block * S::block_keys + warp * kTileKeys;
      const uint32_t here = ring + stage * S::stage_bytes;
      ptx::cp_async_wait_group<Stages - 1>();
      __syncwarp();
      if (key < at.length) worker.tile(here, here + S::tile_bytes, S::panel_bytes, at.length - key);
      __syncwarp();
      next(here);
      if (++stage == Stages) stage = 0;
      fresh = at.block == at.blocks - 1 || i == count - 1;
      if (fresh) worker.finish(at);
      advance<S::block_keys>(p, lists, at);
    }
    ptx::cp_async_wait_group<0>();
  }
  zero_empty<T, Warps * 32>(p, lists);
}

}  // namespace cuda_llm_ops::cuda::decode
