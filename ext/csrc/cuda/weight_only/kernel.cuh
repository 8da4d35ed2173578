// out = x (q - zero) scale with packed weights: the weights are the side of 16 of mma.sync m16n8k16, rows of x that of
// 8, so that few rows waste little. Numbers become 16-bit elements in registers, exactly; the sums of a group are
// multiplied by its scale in float32.
//
// A thread block has 8 warps of 32 columns each. It walks over its units (split.h), each 128 of k, through a ring of
// stages in shared memory that cp.async fills. A lane copies exactly the weights that it uses. Rows of x are shared by
// the warps. The scales of a unit are loaded into registers one unit ahead.
//
// Where several thread blocks compute one column block, each leaves float32 sums in the workspace. The last to arrive
// adds them in the order of the blocks: the bits repeat.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../../weight_only.h"
#include "../numeric.cuh"
#include "../ptx/atomic.cuh"
#include "../ptx/cp_async.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../ptx/mma_sync.cuh"
#include "../ptx/shared_address.cuh"
#include "../ptx/shared_vectors.cuh"
#include "numbers.cuh"
#include "split.h"

namespace cuda_llm_ops::cuda::weight_only {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kWarpTiles = 2;                                        // tiles of 16 columns a warp
constexpr int kColumns = kWarps * kWarpTiles * kWeightColumns;       // 256 a thread block
constexpr int kChunkTiles = 2, kChunk = kChunkTiles * kWeightDepth;  // 128 of k a unit
constexpr int kChunkBytes = kChunk * 2;                              // of a row of x

struct Parameters {
  const uint8_t* packed;
  const char* x;
  const void* scales;
  const uint8_t* zeros;
  void* out;
  float* partial;
  uint32_t* counters;
  int64_t x_stride_bytes;
  int32_t m, n, column_tiles, depth_tiles, groups;
  bool small_groups;  // of 64
  Split split;
};

template <int Bits, int Rows>
struct Shape {
  static constexpr int tile = weight_tile_bytes(Bits);
  static constexpr int lane_tile = tile / 32;  // bytes of a tile that a lane reads: 16 or 32
  static constexpr int weights = kWarps * kWarpTiles * kChunkTiles * tile;
  static constexpr int stage = weights + Rows * kChunkBytes;
  static constexpr int blocks_per_sm = Rows <= 16 ? 2 : 1;
  // What a block of an A100 may have, and half of what a Hopper card's blocks have together.
  static constexpr int room = (blocks_per_sm == 1 ? 160 : 110) * 1024 / stage;
  static constexpr int stages = room < 6 ? room : 6;
  static_assert(stages >= 3, "the copies of one stage are to overlap the products of another");
  static constexpr int bytes = stages * stage;
};

template <typename T>
__device__ __forceinline__ float load_scale(const void* scales, int64_t at) {
  return to_float(static_cast<const T*>(scales)[at]);
}

template <typename T, int Bits, int Rows>
class Worker {
  using S = Shape<Bits, Rows>;
  static constexpr int kRowBlocks = Rows / 8;

 public:
  __device__ Worker(const Parameters& p, uint32_t shared)
      : p_(p), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32), warp_(static_cast<int>(threadIdx.x) / 32) {}

  __device__ void run() {
    const int32_t begin = p_.split.first(static_cast<int32_t>(blockIdx.x));
    const int32_t end = p_.split.first(static_cast<int32_t>(blockIdx.x) + 1);
#pragma unroll
    for (int s = 0; s < S::stages - 1; ++s) {
      if (begin + s < end) copy(begin + s, s);
      ptx::cp_async_commit_group();
    }
    fetch_group(begin);
    clear();
    int stage = 0;
    int32_t segment = begin;
    for (int32_t unit = begin; unit < end; ++unit) {
      ptx::cp_async_wait_group<S::stages - 2>();
      __syncthreads();
      const int into = stage == 0 ? S::stages - 1 : stage - 1;
      if (unit + S::stages - 1 < end) copy(unit + S::stages - 1, into);
      ptx::cp_async_commit_group();
      take_group();
      if (unit + 1 < end) fetch_group(unit + 1);
      multiply(unit % p_.split.chunks, stage);
      if (unit + 1 == end || (unit + 1) % p_.split.chunks == 0) {
        finish(unit / p_.split.chunks, segment % p_.split.chunks == 0 && (unit + 1) % p_.split.chunks == 0);
        segment = unit + 1;
        clear();
      }
      stage = stage + 1 == S::stages ? 0 : stage + 1;
    }
  }

 private:
  __device__ __forceinline__ int32_t tile_of(int32_t column_block, int j) const {
    return (column_block * kWarps + warp_) * kWarpTiles + j;
  }
  __device__ __forceinline__ uint32_t weights_at(int stage, int j, int depth) const {
    return shared_ + stage * S::stage + ((warp_ * kWarpTiles + j) * kChunkTiles + depth) * S::tile + lane_ * 16;
  }

  // A unit's weights and rows of x into a stage; zeros where there are none.
  __device__ __forceinline__ void copy(int32_t unit, int stage) {
    const int32_t column_block = unit / p_.split.chunks, chunk = unit % p_.split.chunks;
#pragma unroll
    for (int j = 0; j < kWarpTiles; ++j) {
      const int32_t tile = tile_of(column_block, j);
#pragma unroll
      for (int d = 0; d < kChunkTiles; ++d) {
        const int32_t depth = chunk * kChunkTiles + d;
        const bool there = tile < p_.column_tiles && depth < p_.depth_tiles;
        const int64_t at = there ? int64_t{tile} * p_.depth_tiles + depth : 0;
        const uint8_t* const from = p_.packed + at * S::tile + lane_ * 16;
#pragma unroll
        for (int half = 0; half < S::lane_tile / 16; ++half) {
          ptx::cp_async_cg_16(weights_at(stage, j, d) + half * 512, from + half * 512, there ? 16 : 0);
        }
      }
    }
    const uint32_t rows = shared_ + stage * S::stage + S::weights;
    constexpr int pieces = kChunkBytes / 16;
#pragma unroll
    for (int i = 0; i < (Rows * pieces + kThreads - 1) / kThreads; ++i) {
      const int item = i * kThreads + static_cast<int>(threadIdx.x), row = item / pieces, piece = item % pieces;
      if (Rows * pieces % kThreads != 0 && row >= Rows) break;
      const bool there = row < p_.m && chunk * kChunkTiles + piece / 8 < p_.depth_tiles;
      const char* const from = p_.x + (there ? row * p_.x_stride_bytes + int64_t{chunk} * kChunkBytes + piece * 16 : 0);
      ptx::cp_async_cg_16(rows + row * kChunkBytes + ((piece ^ (row & 7)) * 16), from, there ? 16 : 0);
    }
  }

  // The scales and zero points of a unit, into registers that are read a unit later.
  __device__ __forceinline__ void fetch_group(int32_t unit) {
    if constexpr (Bits == 4) {
      const int32_t column_block = unit / p_.split.chunks, chunk = unit % p_.split.chunks;
#pragma unroll
      for (int d = 0; d < kChunkTiles; ++d) {
        if (d == 1 && !p_.small_groups) break;
        const int32_t wanted = p_.small_groups ? chunk * kChunkTiles + d : chunk;
        const int32_t group = wanted < p_.groups ? wanted : p_.groups - 1;
#pragma unroll
        for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int32_t wide = tile_of(column_block, j) * kWeightColumns + 8 * h + lane_ / 4;
            const int64_t at = int64_t{group} * p_.n + (wide < p_.n ? wide : p_.n - 1);
            next_scale_[d][j][h] = static_cast<const T*>(p_.scales)[at];
            next_zero_[d][j][h] = p_.zeros == nullptr ? 8 : p_.zeros[at];
          }
        }
      }
    }
  }
  // A scale's bits, and the zero point above them: one register for both until they are used.
  __device__ __forceinline__ void take_group() {
    if constexpr (Bits == 4) {
#pragma unroll
      for (int d = 0; d < kChunkTiles; ++d) {
#pragma unroll
        for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const bool second = d == 1 && p_.small_groups;
            const T scale = second ? next_scale_[1][j][h] : next_scale_[0][j][h];
            const uint32_t zero = second ? next_zero_[1][j][h] : next_zero_[0][j][h];
            group_[d][j][h] = *reinterpret_cast<const uint16_t*>(&scale) | (zero & 15) << 16;
          }
        }
      }
    }
  }
  __device__ __forceinline__ float scale_of(int d, int j, int h) const {
    const uint16_t bits = static_cast<uint16_t>(group_[d][j][h]);
    return to_float(*reinterpret_cast<const T*>(&bits));
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kWarpTiles; ++j)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) total_[j][r][e] = part_[j][r][e] = 0.0f;
  }

  __device__ __forceinline__ void multiply(int32_t chunk, int stage) {
    const uint32_t rows = shared_ + stage * S::stage + S::weights;
#pragma unroll
    for (int d = 0; d < kChunkTiles; ++d) {
      if (chunk * kChunkTiles + d < p_.depth_tiles) {
        uint4 words[kWarpTiles][S::lane_tile / 16];
#pragma unroll
        for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
          for (int half = 0; half < S::lane_tile / 16; ++half) {
            words[j][half] = ptx::load_shared_vector(weights_at(stage, j, d) + half * 512);
          }
        }
        constexpr int together = Rows < 64 ? 2 : 1;  // steps of 16 of k; many rows leave no registers for two
#pragma unroll
        for (int first = 0; first < 4; first += together) {
          uint32_t a[kWarpTiles][together][4];
#pragma unroll
          for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
            for (int s = 0; s < together; ++s) widen(words[j], first + s, d, j, a[j][s]);
          }
#pragma unroll
          for (int r = 0; r < kRowBlocks; ++r) {
            uint32_t b[2 * together];
            const int row = 8 * r + lane_ % 8, piece = 8 * d + 2 * first + lane_ / 8 % (2 * together);
            fragments(b, rows + row * kChunkBytes + ((piece ^ (row & 7)) * 16));
#pragma unroll
            for (int s = 0; s < together; ++s) {
#pragma unroll
              for (int j = 0; j < kWarpTiles; ++j) {
                ptx::mma_sync_m16n8k16<T>(Bits == 4 ? part_[j][r] : total_[j][r], a[j][s], b[2 * s], b[2 * s + 1]);
              }
            }
          }
        }
        if (Bits == 4 && (d == kChunkTiles - 1 || p_.small_groups)) promote(d);
      }
    }
  }

  __device__ __forceinline__ static void fragments(uint32_t (&b)[4], uint32_t address) { ptx::ldmatrix_x4(b, address); }
  __device__ __forceinline__ static void fragments(uint32_t (&b)[2], uint32_t address) { ptx::ldmatrix_x2(b, address); }

  __device__ __forceinline__ static uint32_t word(const uint4& of, int at) {
    return at == 0 ? of.x : at == 1 ? of.y : at == 2 ? of.z : of.w;
  }
  __device__ __forceinline__ void widen(const uint4 (&words)[S::lane_tile / 16], int step, int d, int j,
                                        uint32_t (&a)[4]) const {
    if constexpr (Bits == 4) {
      widen_4<T>(word(words[0], step), offset_low<T>(group_[d][j][0] >> 16), offset_high<T>(group_[d][j][1] >> 16), a);
    } else {
      const uint4& half = words[step / 2];
      widen_8<T>(word(half, step % 2 * 2), word(half, step % 2 * 2 + 1), a);
    }
  }

  // The sums of a group, times its scale, join the total.
  __device__ __forceinline__ void promote(int d) {
#pragma unroll
    for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          total_[j][r][e] = fmaf(scale_of(d, j, e / 2), part_[j][r][e], total_[j][r][e]);
          part_[j][r][e] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ float* slot(int32_t block, int32_t column_block) const {
    return p_.partial + int64_t{p_.split.slot(block, column_block)} * (Rows * kColumns) + threadIdx.x;
  }

  __device__ void finish(int32_t column_block, bool whole) {
    if (!whole && !combined(column_block)) return;
    store(column_block);
  }

  // True for the last of the thread blocks of a column block, which then holds the sums of all.
  __device__ bool combined(int32_t column_block) {
    __shared__ uint32_t arrived;
    float* const mine = slot(static_cast<int32_t>(blockIdx.x), column_block);
#pragma unroll
    for (int j = 0; j < kWarpTiles; ++j)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) __stcg(mine + ((j * kRowBlocks + r) * 4 + e) * kThreads, total_[j][r][e]);
    __threadfence();
    __syncthreads();
    const int32_t first = p_.split.block_of(column_block * p_.split.chunks);
    const int32_t last = p_.split.block_of((column_block + 1) * p_.split.chunks - 1);
    uint32_t* const counter = p_.counters + column_block;
    if (threadIdx.x == 0) arrived = ptx::atomic_add_acq_rel(counter, 1);
    __syncthreads();
    if (arrived != static_cast<uint32_t>(last - first)) return false;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;
    clear();
    for (int32_t block = first; block <= last; ++block) {
      const float* const from = slot(block, column_block);
#pragma unroll
      for (int j = 0; j < kWarpTiles; ++j)
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) total_[j][r][e] += __ldcg(from + ((j * kRowBlocks + r) * 4 + e) * kThreads);
    }
    return true;
  }

  __device__ void store(int32_t column_block) {
#pragma unroll
    for (int j = 0; j < kWarpTiles; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int32_t column = tile_of(column_block, j) * kWeightColumns + 8 * h + lane_ / 4;
        if (column >= p_.n) continue;
        const float scale = Bits == 8 ? load_scale<T>(p_.scales, column) : 1.0f;
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int32_t row = 8 * r + lane_ % 4 * 2 + e;
            if (row < p_.m) {
              static_cast<T*>(p_.out)[int64_t{row} * p_.n + column] = from_float<T>(total_[j][r][2 * h + e] * scale);
            }
          }
        }
      }
    }
  }

  const Parameters& p_;
  const uint32_t shared_;
  const int lane_, warp_;
  float total_[kWarpTiles][kRowBlocks][4], part_[kWarpTiles][kRowBlocks][4];
  T next_scale_[kChunkTiles][kWarpTiles][2];
  uint32_t next_zero_[kChunkTiles][kWarpTiles][2];
  uint32_t group_[kChunkTiles][kWarpTiles][2];
};

template <typename T, int Bits, int Rows>
__global__ void __launch_bounds__(kThreads, Shape<Bits, Rows>::blocks_per_sm)
    weight_only_product(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) uint8_t stages[];
  Worker<T, Bits, Rows>(p, ptx::shared_address(stages)).run();
}

}  // namespace cuda_llm_ops::cuda::weight_only
