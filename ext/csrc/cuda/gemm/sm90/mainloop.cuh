// Shared by the Hopper GEMM kernels: stages in shared memory, the producer's loads and the consumers' products.
//
//   producer (one thread)                          consumers (each warpgroup: tile_m / warpgroups rows of the tile)
//   wait empty[s] -> expect bytes on full[s]       wait full[s] -> wgmma over tile_k, asynchronously
//   TMA: P tile -> stage s, Q tile -> stage s      previous stage's wgmma done -> arrive empty[s - 1]
//
// A stage holds the P tile, then the Q tile, both as TMA's 128-byte swizzle writes them:
//   K-major    panels of 64 elements along k (128 bytes), each of tile_m (tile_n) rows
//   MN-major   panels of 64 elements along m (n), each of tile_k rows; the last panel is loaded whole even where the
//              tile ends inside it
// In a cluster the blocks that share a tile each load an equal part of it and multicast that to all of them: K-major
// parts are rows of the tile, MN-major ones rows of k.
#pragma once

#include "../../ptx/barrier.cuh"
#include "../../ptx/cluster.cuh"
#include "../../ptx/cvt.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/stmatrix.cuh"
#include "../../ptx/tma.cuh"
#include "../../ptx/wgmma.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// Alternating: two consumer warpgroups, each with a tile of its own in turn, instead of a part of each tile.
template <typename T_, int TileM, int TileN, int TileK, int Stages, int Warpgroups, int PMnMajor, int QMnMajor,
          bool Alternating = false>
struct Tile {
  using T = T_;
  static constexpr int m = TileM, n = TileN, k = TileK, stages = Stages, warpgroups = Warpgroups;
  static constexpr int p_mn_major = PMnMajor, q_mn_major = QMnMajor;
  static constexpr bool pingpong = Alternating;
  static constexpr int sharers = Alternating ? 1 : Warpgroups;  // warpgroups that multiply a tile
  static constexpr int rows = TileM / sharers;                  // of each
  static constexpr int m64s = rows / 64;                        // wgmma's along m
  static constexpr int registers = TileN / 2;                   // accumulators a thread, of one wgmma
  // Three consumer warpgroups and one warp would have 128 registers a thread, two 168: with a whole warpgroup for the
  // producer they can be moved to the consumers.
  static constexpr bool moves_registers = Warpgroups == 3 || m64s * registers > 128;
  static constexpr int producer_registers = 40, consumer_registers = Warpgroups == 3 ? 152 : 232;
  static constexpr int threads = Warpgroups * 128 + (moves_registers ? 128 : 32);
  static constexpr int q_extent = QMnMajor ? (TileN + 63) / 64 * 64 : TileN;  // columns in a stage: whole panels
  static constexpr int p_bytes = TileM * TileK * 2, q_bytes = q_extent * TileK * 2;
  static constexpr int stage_bytes = p_bytes + q_bytes;
  static_assert(rows % 64 == 0 && TileK % 64 == 0 && TileN % 8 == 0 && TileN <= 256);
  static_assert(!Alternating || Warpgroups == 2);
  static_assert(p_bytes % 1024 == 0 && q_bytes % 1024 == 0, "the swizzle's atom is 1024 bytes");
};

struct Position {
  int stage = 0;
  uint32_t phase = 0;

  template <int Stages>
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }

  // By as many stages at once.
  template <int Stages>
  __device__ __forceinline__ void skip(int count) {
    stage += count;
    phase ^= stage / Stages % 2;
    stage %= Stages;
  }
};

// The position of a cluster's tile, from its number. Tiles are numbered in groups of `group` tiles along m; within a
// group n is the outer index. So tiles that run at the same time share rows and columns in L2.
struct TileCoordinates {
  int m, n, batch;

  __device__ __forceinline__ TileCoordinates(const KernelArguments& arguments, int tile) {
    const int per_batch = arguments.tiles_m * arguments.tiles_n;
    batch = tile / per_batch;
    tile -= batch * per_batch;
    const int per_group = arguments.group * arguments.tiles_n;
    const int group = tile / per_group;
    tile -= group * per_group;
    const int first = group * arguments.group;
    const int height = min(arguments.group, arguments.tiles_m - first);
    n = tile / height;
    m = first + tile - n * height;
  }
};

// The first row (or column) of the tile that by its number would begin at `start`. The last tile is moved back so that
// it ends with its operand: TMA takes longer to fill in zeros than to load rows. The rows that two tiles then have in
// common are written twice, with the same bits. For an MN-major operand TMA needs offsets that are multiples of 16
// bytes; if the length is not such a multiple, the last tile is not moved.
template <int Extent, int MnMajor>
__device__ __forceinline__ int tile_start(int start, int length) {
  return length >= Extent && (!MnMajor || length % 8 == 0) ? min(start, length - Extent) : start;
}

// This block's part of an operand's tile that a cluster shares: the block loads rows from `first` on and multicasts
// them to the blocks of `mask`. It is computed before the loop, because one thread issues all loads and a division for
// each k block would limit it.
struct Share {
  int first = 0;
  uint16_t mask = 0;  // 0: the tile is not shared
};

// One operand's tile, or this block's part of it, into one stage.
template <int Extent, int TileK, int MnMajor>
__device__ __forceinline__ void load_operand(const CUtensorMap* map, uint32_t shared, uint32_t full, int mn, int k,
                                             int batch, const Share& share) {
#pragma unroll
  for (int panel = 0; panel < (MnMajor ? Extent : TileK) / 64; ++panel) {
    const uint32_t to = shared + (panel * (MnMajor ? TileK : Extent) + share.first) * 128;
    const int x = MnMajor ? mn + panel * 64 : k + panel * 64, y = (MnMajor ? k : mn) + share.first;
    if (share.mask == 0) {
      ptx::tma_load_3d(to, map, full, x, y, batch, ptx::evict_normal);
    } else {
      ptx::tma_load_3d_multicast(to, map, full, x, y, batch, share.mask, ptx::evict_normal);
    }
  }
}

// Prefetches into L2 the part of the operand that is read once that a block loads first: `extent` rows (columns) from
// mn, k blocks from `block` on. It uses the load path, which is idle then; TMA would take as long as for loads.
template <int TileK, int MnMajor>
__device__ __forceinline__ void fetch_ahead(const KernelArguments& arguments, int mn, int extent, int block, int thread,
                                            int threads) {
  const int blocks = min(arguments.ahead_blocks, arguments.k_blocks - block);
  const int first_line = MnMajor ? block * TileK : mn;
  const int64_t first = int64_t{2} * (MnMajor ? mn : block * TileK);  // byte of a line
  const int lines = min(MnMajor ? blocks * TileK : extent, arguments.ahead_lines - first_line);
  const int64_t bytes = min(int64_t{2} * (MnMajor ? extent : blocks * TileK), arguments.ahead_line_bytes - first);
  const uint8_t* const from =
      static_cast<const uint8_t*>(arguments.ahead) + first_line * arguments.ahead_stride + first;
  const int pieces = static_cast<int>((bytes + 127) / 128);
  for (int i = thread; i < lines * pieces; i += threads) {
    const int line = i / pieces;
    ptx::prefetch_l2(from + line * arguments.ahead_stride + (i - line * pieces) * 128);
  }
}

// A warp's share of fetching an operand into L2, in pieces of `kPiece` bytes over the whole grid. TMA's boxes ask for
// 128 bytes of each of many rows, which memory serves slowly; here it reads along its pages.
__device__ __forceinline__ void prefetch_operand(const void* operand, uint32_t bytes) {
  constexpr uint32_t kPiece = 2048;
  const uint32_t step = gridDim.x * 32 * kPiece;
  for (uint32_t at = (blockIdx.x * 32 + threadIdx.x % 32) * kPiece; at < bytes; at += step) {
    ptx::bulk_prefetch(static_cast<const uint8_t*>(operand) + at, min(kPiece, bytes - at));
  }
}

// Before griddepcontrol.wait: the memory's latency is spent while the previous grid ends.
__device__ __forceinline__ void prefetch_operands(const KernelArguments& arguments) {
  prefetch_operand(arguments.prefetch_p, arguments.prefetch_p_bytes);
  prefetch_operand(arguments.prefetch_q, arguments.prefetch_q_bytes);
}

// A warpgroup's products of one stage: d += P[rows of `warpgroup`] Q. Asynchronous: commits a group.
template <typename Tile>
__device__ __forceinline__ void multiply_stage(float (&d)[Tile::m64s][Tile::registers], uint32_t stage, int warpgroup,
                                               bool accumulate) {
  const uint32_t p =
      stage + (Tile::p_mn_major ? warpgroup * (Tile::rows / 64) * Tile::k * 128 : warpgroup * Tile::rows * 128);
  const uint64_t p_base = Tile::p_mn_major ? ptx::mn_major_descriptor(p, Tile::k) : ptx::k_major_descriptor(p);
  const uint32_t q = stage + Tile::p_bytes;
  const uint64_t q_base = Tile::q_mn_major ? ptx::mn_major_descriptor(q, Tile::k) : ptx::k_major_descriptor(q);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Tile::k / 16; ++step) {
    // In units of 16 bytes, as descriptors count.
    const int p_step = Tile::p_mn_major ? step * 128 : step / 4 * (Tile::m * 8) + step % 4 * 2;
    const int q_step = Tile::q_mn_major ? step * 128 : step / 4 * (Tile::n * 8) + step % 4 * 2;
#pragma unroll
    for (int i = 0; i < Tile::m64s; ++i) {
      const int p_row = i * (Tile::p_mn_major ? Tile::k * 8 : 512);
      ptx::Wgmma<Tile::n>::template ss<typename Tile::T, Tile::p_mn_major, Tile::q_mn_major>(
          d[i], p_base + p_step + p_row, q_base + q_step, step > 0 || accumulate);
    }
  }
  ptx::wgmma_commit_group();
}

template <typename Tile>
__device__ __forceinline__ void pin(float (&d)[Tile::m64s][Tile::registers]) {
#pragma unroll
  for (int i = 0; i < Tile::m64s; ++i) ptx::wgmma_fence_operand(d[i]);
}

// An element of `c`, as float.
template <typename T>
__device__ __forceinline__ float load_c(const KernelArguments& arguments, int batch, int row, int column) {
  const int64_t offset = batch * arguments.c_stride_batch + row * arguments.c_stride_m + column * arguments.c_stride_n;
  if (arguments.out_float) return static_cast<const float*>(arguments.c)[offset];
  return static_cast<float>(static_cast<const T*>(arguments.c)[offset]);
}

template <typename T>
__device__ __forceinline__ T narrow(float value) {
  if constexpr (ptx::is_bfloat16<T>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
