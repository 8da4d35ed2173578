// Weight-only products on Hopper: the transposed product. 16 columns of weights for each warp are the first operand, in
// registers, where they were widened, exactly; the second operand is rows of x in shared memory.
//
//   way             TMA loads of packed weights, x, scales and zero points into stages (producer) -> 16 bytes of
//                   weights a lane -> 16-bit fragments in registers -> mma.sync or wgmma -> a group's sums -> times its
//                   scale, to the totals -> sums of all blocks of the tile -> out
//   warps 0 .. 7    consumers: a packed tile's 16 columns each
//   warp 8          One thread is the producer. Weights need not wait for the kernel before to be fetched into L2.
//
//   shared memory   [stage 0: x, two panels of 64 of k | weights, by column tile | scales | zero points] ...
//                   [full S][empty S]; at the end of a cluster the sums of its blocks take the place of the stages
//   few rows        wgmma takes 32 clocks for a first operand in registers, whatever its n is: so up to
//                   kMostRowsByWarps rows are multiplied by mma.sync
//   more rows       While the tensor core multiplies 64 of k, a warp widens the next 64 into other registers.
//   split           A block walks over a run of units (../split.h). Blocks that share a tile are a cluster, of which
//                   each adds a share of the sums of all, or leave float32 sums in the workspace, where the last to
//                   arrive adds them. Either way they are added in the order of the blocks, so the bits repeat.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "../../numeric.cuh"
#include "../../ptx/atomic.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/cluster.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/shared_vectors.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/tma.cuh"
#include "../../ptx/wgmma.cuh"
#include "../numbers.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

constexpr int kMostRowsByWarps = 32;

template <typename T_, int Bits, int Group, int Rows, int Stages, int BlocksPerSm>
struct Tile {
  using T = T_;
  static constexpr int bits = Bits, group = Group, rows = Rows, stages = Stages, blocks_per_sm = BlocksPerSm;
  static constexpr bool small_groups = Bits == 4 && Group == 64;
  static constexpr bool by_warps = Rows <= kMostRowsByWarps;
  static constexpr int groups = small_groups ? 2 : 1;  // of a stage
  // 128 rows need more than the 168 registers that a third of a multiprocessor has for each thread.
  static constexpr bool moves_registers = Rows == 128;
  static constexpr int consumers = 256, threads = consumers + (moves_registers ? 128 : 32);
  static constexpr int registers = Rows / 2;                               // accumulators a thread
  static constexpr int packed = kWeightColumns * kWeightDepth * Bits / 8;  // bytes of a packed tile
  static constexpr int x_panel = Rows * 128, x_bytes = 2 * x_panel;
  static constexpr int weight_bytes = kColumns / kWeightColumns * 2 * packed;
  static constexpr int scale_bytes = Bits == 4 ? groups * kColumns * 2 : 0;
  static constexpr int zero_bytes = Bits == 4 ? groups * kColumns : 0;
  static constexpr int stage_bytes = (x_bytes + weight_bytes + scale_bytes + zero_bytes + 1023) / 1024 * 1024;
  static constexpr int shared_bytes = Stages * (stage_bytes + 16);
  static_assert(BlocksPerSm * (shared_bytes + 2048) <= 228 * 1024);
};

// A ring position.
template <int Stages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& of, int at) {
  return at == 0 ? of.x : at == 1 ? of.y : at == 2 ? of.z : of.w;
}

// The zero points of a lane's two columns in a group, as what is taken from the widened numbers.
struct Offsets {
  uint32_t low, high;
};

// The fragments of a packed tile: 64 of k, in steps of 16.
template <typename Tile>
__device__ __forceinline__ void widen(uint32_t (&a)[4][4], uint32_t address, const Offsets& offsets) {
  using T = typename Tile::T;
  if constexpr (Tile::bits == 4) {
    const uint4 words = ptx::load_shared_vector(address);
#pragma unroll
    for (int s = 0; s < 4; ++s) widen_4<T>(word_of(words, s), offsets.low, offsets.high, a[s]);
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = ptx::load_shared_vector(address + half * 512);
#pragma unroll
      for (int s = 0; s < 2; ++s) widen_8<T>(word_of(words, 2 * s), word_of(words, 2 * s + 1), a[2 * half + s]);
    }
  }
}

__device__ __forceinline__ void pin(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) ptx::wgmma_fence_operand(a[s]);
}

template <typename Tile>
__device__ __forceinline__ void multiply(float (&d)[Tile::registers], uint32_t (&a)[4][4], uint64_t x, int add) {
  pin(a);
  ptx::wgmma_fence_operand(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    ptx::Wgmma<Tile::rows>::template rs<typename Tile::T, 0>(d, a[s], x + s * 2, s > 0 ? 1 : add);
  }
  ptx::wgmma_commit_group();
}

// The same by one warp, at once: 16 columns by the rows of x, of which `x` is a panel of 64 of k. With 8 rows the odd
// steps of k have sums of their own, which do not wait for the even ones.
template <typename Tile>
__device__ __forceinline__ void multiply_by_warp(float (&d)[Tile::registers], const uint32_t (&a)[4][4], uint32_t x) {
  constexpr int blocks = Tile::rows / 8, chains = blocks == 1 ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8;
  float sums[chains][blocks][4];
#pragma unroll
  for (int j = 0; j < blocks; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[0][j][e] = d[4 * j + e];
      if (chains == 2) sums[chains - 1][j][e] = 0.0f;
    }
  }
#pragma unroll
  for (int s = 0; s < 4; s += 2) {
    uint32_t b[blocks][4];
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
      ptx::ldmatrix_x4(b[j], x + (8 * j + row) * 128 + ((2 * s + lane / 8) ^ row) * 16);
    }
#pragma unroll
    for (int later = 0; later < 2; ++later) {
#pragma unroll
      for (int j = 0; j < blocks; ++j) {
        ptx::mma_sync_m16n8k16<typename Tile::T>(sums[later % chains][j], a[s + later], b[j][2 * later],
                                                 b[j][2 * later + 1]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < blocks; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[4 * j + e] = chains == 2 ? sums[0][j][e] + sums[chains - 1][j][e] : sums[0][j][e];
  }
}

template <typename Tile>
class Consumer {
  using T = typename Tile::T;
  static constexpr int kRegisters = Tile::registers;

 public:
  __device__ __forceinline__ Consumer(const Parameters& p, uint32_t stages, uint32_t full, uint32_t empty)
      : p_(p), stages_(stages), full_(full), empty_(empty), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void run(int32_t begin, int32_t end) {
    Ring<Tile::stages> at;
    float total[kRegisters];
    for (int32_t segment = begin; segment < end;) {  // the units of a tile
      const int32_t tile = segment / p_.split.chunks;
      const int32_t count = min(end, (tile + 1) * p_.split.chunks) - segment;
      clear(total);
      if constexpr (Tile::by_warps) {
        sum_by_warps(total, at, count);
      } else {
        sum_by_warpgroups(total, at, count);
      }
      finish(total, tile, count == p_.split.chunks);
      segment += count;
    }
  }

 private:
  // A lane's share of a stage's packed weights.
  __device__ __forceinline__ uint32_t weights_of(uint32_t stage) const {
    return stage + Tile::x_bytes + thread_ / 32 * 2 * Tile::packed + thread_ % 32 * 16;
  }

  // Adds the products of `count` stages to the totals, by mma.sync.
  __device__ __forceinline__ void sum_by_warps(float (&total)[kRegisters], Ring<Tile::stages>& at,
                                               int32_t count) const {
    float part[kRegisters];
    clear(part);
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t stage = stages_ + at.stage * Tile::stage_bytes;
      ptx::mbarrier_wait(full_ + at.stage * 8, at.phase);
      float scale[2][2];
      Offsets offsets[2];
      if constexpr (Tile::bits == 4) load_groups(scale, offsets, stage);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4][4];
        widen<Tile>(a, weights_of(stage) + half * Tile::packed, offsets[half]);
        multiply_by_warp<Tile>(Tile::bits == 4 ? part : total, a, stage + half * Tile::x_panel);
        if (Tile::bits == 4 && (half == 1 || Tile::small_groups)) {
          take(total, part, scale[half]);
          clear(part);
        }
      }
      __syncwarp();
      if (thread_ % 32 == 0) ptx::mbarrier_arrive(empty_ + at.stage * 8);
      at.advance();
    }
  }

  // The same by wgmma.
  __device__ __forceinline__ void sum_by_warpgroups(float (&total)[kRegisters], Ring<Tile::stages>& at,
                                                    int32_t count) const {
    const int lane = thread_ % 32;
    float part[kRegisters];
    float scale[2] = {0.0f, 0.0f};  // of the group in `part`
    uint32_t a[2][4][4];
    uint32_t before = 0;  // the empty barrier of the stage that was multiplied last
    clear(part);
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t stage = stages_ + at.stage * Tile::stage_bytes, weights = weights_of(stage);
      ptx::mbarrier_wait(full_ + at.stage * 8, at.phase);
      float next_scale[2][2];
      Offsets offsets[2];
      if constexpr (Tile::bits == 4) load_groups(next_scale, offsets, stage);
      const uint64_t x = ptx::k_major_descriptor(stage), x_later = x + Tile::x_panel / 16;
      const auto release_before = [&] {
        if (before != 0 && lane == 0) ptx::mbarrier_arrive(before);
        before = empty_ + at.stage * 8;
      };
      // The products of the second half of the stage before may be in flight, and with them a[1].
      ptx::wgmma_wait_group<1>();
      widen<Tile>(a[0], weights, offsets[0]);
      if constexpr (Tile::bits == 4) {
        // True at once. The loop keeps the compiler from waiting for the products before it has widened a[0].
        pin(a[0]);
        while (!ptx::mbarrier_test_wait(full_ + at.stage * 8, at.phase)) {
        }
        ptx::wgmma_wait_group<0>();
        release_before();
        take(total, part, scale);
        multiply<Tile>(part, a[0], x, 0);
        widen<Tile>(a[1], weights + Tile::packed, offsets[1]);
        if constexpr (Tile::small_groups) {
          ptx::wgmma_wait_group<0>();
          take(total, part, next_scale[0]);
        }
        multiply<Tile>(part, a[1], x_later, !Tile::small_groups);
        scale[0] = next_scale[1][0], scale[1] = next_scale[1][1];
      } else {
        multiply<Tile>(total, a[0], x, 1);
        ptx::wgmma_wait_group<1>();
        release_before();
        widen<Tile>(a[1], weights + Tile::packed, offsets[1]);
        multiply<Tile>(total, a[1], x_later, 1);
      }
      at.advance();
    }
    ptx::wgmma_wait_group<0>();
    if constexpr (Tile::bits == 4) take(total, part, scale);
    ptx::wgmma_fence_operand(total);
    if (lane == 0) ptx::mbarrier_arrive(before);
  }

  // Scales and offsets of the two columns of a lane, for both halves of a stage's k.
  __device__ __forceinline__ void load_groups(float (&scale)[2][2], Offsets (&offsets)[2], uint32_t stage) const {
    const uint32_t scales = stage + Tile::x_bytes + Tile::weight_bytes;
    const int column = thread_ / 32 * kWeightColumns + thread_ % 32 / 4;  // and 8 further on
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      if (d == 1 && !Tile::small_groups) {
        scale[1][0] = scale[0][0], scale[1][1] = scale[0][1];
        offsets[1] = offsets[0];
        break;
      }
      const int place = d * kColumns + column;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint16_t bits = ptx::load_shared_16(scales + 2 * (place + 8 * h));
        scale[d][h] = to_float(*reinterpret_cast<const T*>(&bits));
      }
      uint32_t low = 8, high = 8;
      if (p_.has_zeros) {
        low = ptx::load_shared_8(scales + Tile::scale_bytes + place) & 15;
        high = ptx::load_shared_8(scales + Tile::scale_bytes + place + 8) & 15;
      }
      offsets[d] = {offset_low<T>(low), offset_high<T>(high)};
    }
  }

  __device__ __forceinline__ static void clear(float (&values)[kRegisters]) {
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) values[r] = 0.0f;
  }

  // The sums of a group times its scale join the totals. They are complete: it was waited for them.
  __device__ __forceinline__ static void take(float (&total)[kRegisters], float (&part)[kRegisters],
                                              const float (&scale)[2]) {
    ptx::wgmma_fence_operand(part);
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) total[r] = fmaf(scale[r % 4 / 2], part[r], total[r]);
  }

  __device__ __forceinline__ float4* slot(int32_t block, int32_t tile) const {
    float* const first = p_.partial + int64_t{p_.split.slot(block, tile)} * (Tile::rows * kColumns);
    return reinterpret_cast<float4*>(first) + thread_;
  }

  __device__ __forceinline__ void finish(float (&total)[kRegisters], int32_t tile, bool whole) {
    if (p_.cluster > 1) {
      // All stages have been read once the warps meet: the sums take their place.
      ptx::bar_sync(1, Tile::consumers);
#pragma unroll
      for (int j = 0; j < kRegisters / 4; ++j) {
        ptx::store_shared_vector(sums_at(j * Tile::consumers + thread_), four(total, j));
      }
    } else if (whole || combined(total, tile)) {
#pragma unroll
      for (int j = 0; j < kRegisters / 4; ++j) store(four(total, j), thread_, j, tile);
    }
  }

  // True for the last of the thread blocks of a tile, which then holds the sums of all.
  __device__ __forceinline__ bool combined(float (&total)[kRegisters], int32_t tile) {
    __shared__ uint32_t arrived;
    float4* const mine = slot(static_cast<int32_t>(blockIdx.x), tile);
#pragma unroll
    for (int r = 0; r < kRegisters / 4; ++r) {
      __stcg(mine + r * Tile::consumers, four(total, r));
    }
    // The barrier, then one thread's release, order the sums of all threads before the count.
    ptx::bar_sync(1, Tile::consumers);
    const int32_t first = p_.split.block_of(tile * p_.split.chunks);
    const int32_t last = p_.split.block_of((tile + 1) * p_.split.chunks - 1);
    if (thread_ == 0) {
      arrived = ptx::atomic_add_acq_rel(p_.counters + tile, 1);
      if (arrived == static_cast<uint32_t>(last - first)) p_.counters[tile] = 0;
    }
    ptx::bar_sync(1, Tile::consumers);
    if (arrived != static_cast<uint32_t>(last - first)) return false;
    clear(total);
    constexpr int together = kRegisters >= 24 ? 1 : 24 / kRegisters;  // parts whose loads are in flight at once
    int32_t block = first;
    for (; block + together <= last + 1; block += together) add<together>(total, block, tile);
    for (; block <= last; ++block) add<1>(total, block, tile);
    return true;
  }
  template <int Parts>
  __device__ __forceinline__ void add(float (&total)[kRegisters], int32_t block, int32_t tile) const {
    float4 part[Parts][kRegisters / 4];
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      const float4* const from = slot(block + i, tile);
#pragma unroll
      for (int r = 0; r < kRegisters / 4; ++r) part[i][r] = __ldcg(from + r * Tile::consumers);
    }
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
#pragma unroll
      for (int r = 0; r < kRegisters / 4; ++r) {
        total[4 * r] += part[i][r].x;
        total[4 * r + 1] += part[i][r].y;
        total[4 * r + 2] += part[i][r].z;
        total[4 * r + 3] += part[i][r].w;
      }
    }
  }

  __device__ __forceinline__ static float4 four(const float (&total)[kRegisters], int j) {
    return make_float4(total[4 * j], total[4 * j + 1], total[4 * j + 2], total[4 * j + 3]);
  }
  __device__ __forceinline__ uint32_t sums_at(int index) const { return stages_ + index * 16; }

  // What thread `thread` has in its four registers from 4 j on: two rows of x, of two columns.
  __device__ __forceinline__ void store(float4 sums, int thread, int j, int32_t tile) const {
    const float values[4] = {sums.x, sums.y, sums.z, sums.w};
    const int lane = thread % 32;
    const int32_t row = tile % p_.row_tiles * Tile::rows + lane % 4 * 2 + 8 * j;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t column = tile / p_.row_tiles * kColumns + thread / 32 * kWeightColumns + 8 * h + lane / 4;
      if (column >= p_.n) continue;
      const float scale = Tile::bits == 8 ? to_float(static_cast<const T*>(p_.scales)[column]) : 1.0f;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (row + e < p_.m) {
          static_cast<T*>(p_.out)[int64_t{row + e} * p_.n + column] = from_float<T>(values[2 * h + e] * scale);
        }
      }
    }
  }

 public:
  // After the cluster's barrier: this block's share of the results, from the sums of all blocks in the order of ranks.
  __device__ __forceinline__ void gather(int rank, int32_t tile) const {
    constexpr int all = kRegisters / 4 * Tile::consumers, most = 8;
    const int each = (all + p_.cluster - 1) / p_.cluster, end = min(all, (rank + 1) * each);
    for (int index = rank * each + thread_; index < end; index += Tile::consumers) {
      float4 part[most];
#pragma unroll
      for (int peer = 0; peer < most; ++peer) {
        if (peer < p_.cluster) part[peer] = ptx::ld_cluster_vector(ptx::mapa(sums_at(index), peer));
      }
      float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int peer = 0; peer < most; ++peer) {
        if (peer < p_.cluster) {
          sums.x += part[peer].x, sums.y += part[peer].y, sums.z += part[peer].z, sums.w += part[peer].w;
        }
      }
      store(sums, index % Tile::consumers, index / Tile::consumers, tile);
    }
  }

 private:
  const Parameters& p_;
  const uint32_t stages_, full_, empty_;
  const int thread_;
};

// By one warp: the weights of a block's first stages, into L2, where the kernel before may still write them.
template <typename Tile>
__device__ __forceinline__ void fetch_first_weights(const Parameters& p, int32_t begin, int32_t end) {
  constexpr int tiles = kColumns / kWeightColumns;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < Tile::stages * tiles; i += 32) {
    const int32_t unit = begin + i / tiles;
    const int32_t column_tile = unit / p.split.chunks / p.row_tiles * tiles + i % tiles;
    const int32_t depth_tile = unit % p.split.chunks * 2;
    if (unit >= end || column_tile >= p.column_tiles) continue;
    const int64_t at = int64_t{column_tile} * p.depth_tiles + depth_tile;
    ptx::bulk_prefetch(p.packed + at * Tile::packed, min(2, p.depth_tiles - depth_tile) * Tile::packed);
  }
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks_per_sm)
    weight_only_wgmma(const __grid_constant__ CUtensorMap weights_map, const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap scales_map, const __grid_constant__ CUtensorMap zeros_map,
                      const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + Tile::stages * Tile::stage_bytes, empty = full + Tile::stages * 8;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (warp == 8) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&weights_map);
      ptx::prefetch_tensormap(&x_map);
      if constexpr (Tile::bits == 4) {
        ptx::prefetch_tensormap(&scales_map);
        if (p.has_zeros) ptx::prefetch_tensormap(&zeros_map);
      }
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, Tile::consumers / 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int32_t begin = p.split.first(static_cast<int32_t>(blockIdx.x));
  const int32_t end = p.split.first(static_cast<int32_t>(blockIdx.x) + 1);
  ptx::griddepcontrol_launch_dependents();
  if (warp == 4) fetch_first_weights<Tile>(p, begin, end);
  ptx::griddepcontrol_wait();

  if (warp >= 8) {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_dec<40>();
    if (warp == 8 && ptx::elect_sync()) {
      Ring<Tile::stages> at;
      for (int32_t unit = begin; unit < end; ++unit) {
        const int32_t tile = unit / p.split.chunks, chunk = unit - tile * p.split.chunks;
        const int32_t column_block = tile / p.row_tiles, row_tile = tile - column_block * p.row_tiles;
        const uint32_t stage = stages + at.stage * Tile::stage_bytes, barrier = full + at.stage * 8;
        ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(barrier, p.stage_arrives);
        ptx::tma_load_3d(stage + Tile::x_bytes, &weights_map, barrier, 0, 2 * chunk,
                         column_block * (kColumns / kWeightColumns), ptx::evict_first);
        ptx::tma_load_3d(stage, &x_map, barrier, 0, row_tile * Tile::rows, 2 * chunk, ptx::evict_last);
        if constexpr (Tile::bits == 4) {
          const int32_t group = Tile::groups * chunk;
          const uint32_t scales = stage + Tile::x_bytes + Tile::weight_bytes;
          ptx::tma_load_3d(scales, &scales_map, barrier, column_block * kColumns, group, 0, ptx::evict_first);
          if (p.has_zeros) {
            ptx::tma_load_3d(scales + Tile::scale_bytes, &zeros_map, barrier, column_block * kColumns, group, 0,
                             ptx::evict_first);
          }
        }
        at.advance();
      }
    }
    __syncwarp();
    if (p.cluster > 1) {
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
      ptx::barrier_cluster_arrive_relaxed();
      ptx::barrier_cluster_wait();
    }
  } else {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_inc<232>();
    Consumer<Tile> consumer(p, stages, full, empty);
    consumer.run(begin, end);
    if (p.cluster > 1) {
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
      consumer.gather(static_cast<int>(ptx::cluster_ctarank()), begin / p.split.chunks);
      // A peer may still read this block's sums.
      __syncwarp();
      ptx::barrier_cluster_arrive_relaxed();
      ptx::barrier_cluster_wait();
    }
  }
#endif
}

template <ScalarType Type, int Bits, int Group, int Rows, int Stages, int BlocksPerSm>
constexpr Kernel kernel(const char* name) {
  using Instance = Tile<typename ElementOf<Type>::type, Bits, Group, Rows, Stages, BlocksPerSm>;
  return {name,
          reinterpret_cast<const void*>(&weight_only_wgmma<Instance>),
          Type,
          Bits,
          Group,
          Rows,
          Instance::threads,
          Instance::shared_bytes,
          Instance::blocks_per_sm};
}

// clang-format off: one kernel a line
template <ScalarType Type>
KernelList list() {
  static const Kernel kernels[] = {
      kernel<Type, 4, 64, 8, 9, 2>("wgmma int4 groups of 64 8 rows"),
      kernel<Type, 4, 64, 16, 8, 2>("wgmma int4 groups of 64 16 rows"),
      kernel<Type, 4, 64, 32, 6, 2>("wgmma int4 groups of 64 32 rows"),
      kernel<Type, 4, 64, 64, 8, 1>("wgmma int4 groups of 64 64 rows"),
      kernel<Type, 4, 64, 128, 5, 1>("wgmma int4 groups of 64 128 rows"),
      kernel<Type, 4, 128, 8, 9, 2>("wgmma int4 groups of 128 8 rows"),
      kernel<Type, 4, 128, 16, 8, 2>("wgmma int4 groups of 128 16 rows"),
      kernel<Type, 4, 128, 32, 6, 2>("wgmma int4 groups of 128 32 rows"),
      kernel<Type, 4, 128, 64, 8, 1>("wgmma int4 groups of 128 64 rows"),
      kernel<Type, 4, 128, 128, 5, 1>("wgmma int4 groups of 128 128 rows"),
      kernel<Type, 8, 0, 8, 6, 2>("wgmma int8 8 rows"),
      kernel<Type, 8, 0, 16, 5, 2>("wgmma int8 16 rows"),
      kernel<Type, 8, 0, 32, 4, 2>("wgmma int8 32 rows"),
      kernel<Type, 8, 0, 64, 6, 1>("wgmma int8 64 rows"),
      kernel<Type, 8, 0, 128, 4, 1>("wgmma int8 128 rows"),
  };
  return kernels;
}
// clang-format on

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
