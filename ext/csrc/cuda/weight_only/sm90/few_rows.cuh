// Weight-only products of few rows on Hopper, at the speed of memory: the transposed product by mma.sync. Its first
// operand is 16 columns of weights, widened in registers, exactly; its second is rows of x. (wgmma takes 32 clocks for
// a first operand in registers, whatever its n is: with few rows that is more than memory takes.)
//
//   way             TMA loads of packed weights, x, scales and zero points into stages (producer) -> 16 bytes of
//                   weights a lane -> 16-bit fragments in registers -> mma.sync -> a group's sums -> times its scale,
//                   to the totals -> sums of all warps and blocks with the same columns -> out
//   warps           plan.parts times plan.tiles consumers: warp w has packed tile w % tiles of the block's, and part
//                   w / tiles, which is plan.repeats times 128 of a stage's k. The last warp is the producer: one
//                   thread of it.
//
//   shared memory   [stage 0: x, panels of 64 of k | weights, by packed tile | scales | zero points] ...
//                   [full S][empty S]. At the end the sums of all warps take the place of the stages, where several have
//                   the same columns.
//   sums            Blocks with the same columns are a cluster. Each of them adds a share of the results, from all sums
//                   in the order of blocks and parts, so the bits repeat.
//   walk            A block that shares its columns with none walks over column blocks, gridDim.x apart.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "../../numeric.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/cluster.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/shared_vectors.cuh"
#include "../../ptx/tma.cuh"
#include "kernels.h"
#include "widen.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

template <typename T_, int Bits, int Group, int Rows, int Repeats>
struct FewRowsTile {
  using T = T_;
  static constexpr int bits = Bits, rows = Rows, registers = Rows / 2;  // of the sums, a thread
  static constexpr int repeats = Repeats;
  static constexpr bool small_groups = Bits == 4 && Group == 64;
  static constexpr int groups = small_groups ? 2 : 1;                      // of a part
  static constexpr int packed = kWeightColumns * kWeightDepth * Bits / 8;  // bytes of a packed tile
  static constexpr int x_panel = Rows * 128;
  static constexpr int threads = (kFewRowsConsumers + 1) * 32;
};

// A warp's 16 columns by the rows of x, over a packed tile: `x` is a panel of 64 of k. With 8 rows the odd steps of k
// have sums of their own, which do not wait for the even ones.
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

// A ring of as many stages as the plan has room for.
struct FewRowsRing {
  int32_t stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance(int32_t stages) {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
};

// The sums of the 16 columns of `column_tile` and of two rows of x for every lane; `j` counts eight rows.
template <typename Tile>
__device__ __forceinline__ void store_results(const FewRowsParameters& p, float4 sums, int lane, int j,
                                              int32_t column_tile) {
  using T = typename Tile::T;
  const float values[4] = {sums.x, sums.y, sums.z, sums.w};
  const int32_t row = 8 * j + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int32_t column = column_tile * kWeightColumns + 8 * h + lane / 4;
    if (column >= p.n) continue;
    const float scale = (Tile::bits == 8 ? to_float(static_cast<const T*>(p.scales)[column]) : 1.0f) / fewer_unit<T>;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (row + e < p.m) {
        static_cast<T*>(p.out)[int64_t{row + e} * p.n + column] = from_float<T>(values[2 * h + e] * scale);
      }
    }
  }
}

// Adds the products of `count` stages to the totals of this warp, whose packed tile and part are given.
template <typename Tile>
__device__ __forceinline__ void sum_stages(const FewRowsParameters& p, float (&total)[Tile::registers], FewRowsRing& at,
                                           int32_t count, int tile, int part, uint32_t stages, uint32_t full,
                                           uint32_t empty) {
  using T = typename Tile::T;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t depth = 2 * p.plan.parts * Tile::repeats, columns = kWeightColumns * p.plan.tiles;
  const int32_t first = part * Tile::repeats;  // times 128 of k, of a stage
  const int32_t x_at = first * 2 * Tile::x_panel, weights_at = p.weights_at + (tile * depth + 2 * first) * Tile::packed;
  const int32_t group_at = first * Tile::groups * columns + tile * kWeightColumns + lane / 4;
  float sums[Tile::registers];
#pragma unroll
  for (int r = 0; r < Tile::registers; ++r) sums[r] = 0.0f;
#pragma unroll 1
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t stage = stages + at.stage * p.stage_bytes;
    ptx::mbarrier_wait(full + at.stage * 8, at.phase);
#pragma unroll
    for (int again = 0; again < Tile::repeats; ++again) {
      float scale[2][2];
      Offsets offsets[2];
      if constexpr (Tile::bits == 4) {
#pragma unroll
        for (int d = 0; d < Tile::groups; ++d) {
          const int32_t place = group_at + (again * Tile::groups + d) * columns;
          load_group<T, true>(scale[d], offsets[d], stage + p.scales_at + 2 * place, stage + p.zeros_at + place,
                              p.has_zeros);
        }
        if constexpr (!Tile::small_groups) {
          scale[1][0] = scale[0][0], scale[1][1] = scale[0][1];
          offsets[1] = offsets[0];
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4][4];
        widen<Tile, true>(a, stage + weights_at + (2 * again + half) * Tile::packed + lane * 16, offsets[half]);
        multiply_by_warp<Tile>(Tile::bits == 4 ? sums : total, a, stage + x_at + (2 * again + half) * Tile::x_panel);
        if (Tile::bits == 4 && (half == 1 || Tile::small_groups)) {
#pragma unroll
          for (int r = 0; r < Tile::registers; ++r) {
            total[r] = fmaf(scale[half][r % 4 / 2], sums[r], total[r]);
            sums[r] = 0.0f;
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(empty + at.stage * 8);
    at.advance(p.stages);
  }
  __syncwarp();
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, kFewRowsBlocksPerSm)
    weight_only_few_rows(const __grid_constant__ CUtensorMap weights_map, const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap scales_map, const __grid_constant__ CUtensorMap zeros_map,
                         const __grid_constant__ FewRowsParameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + p.stages * p.stage_bytes, empty = full + p.stages * 8;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  const int consumers = p.plan.tiles * p.plan.parts, cluster = p.plan.cluster;
  const int32_t rank = cluster == 1 ? 0 : static_cast<int32_t>(ptx::cluster_ctarank());
  const int32_t first_block = static_cast<int32_t>(blockIdx.x) / cluster;
  const int32_t block_step = static_cast<int32_t>(gridDim.x) / cluster;
  const int32_t first = p.chunks * rank / cluster, last = p.chunks * (rank + 1) / cluster;  // stages of k
  if (warp == consumers) {
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
    for (int32_t s = 0; s < p.stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, consumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (warp == consumers) {
    if (ptx::elect_sync()) {
      FewRowsRing at;
      for (int32_t block = first_block; block < p.column_blocks; block += block_step) {
        for (int32_t chunk = first; chunk < last; ++chunk) {
          const uint32_t stage = stages + at.stage * p.stage_bytes, barrier = full + at.stage * 8;
          ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(barrier, p.stage_arrives);
          const int32_t depth_tile = chunk * 2 * p.plan.parts * Tile::repeats;
          ptx::tma_load_3d(stage + p.weights_at, &weights_map, barrier, 0, depth_tile, block * p.plan.tiles,
                           ptx::evict_first);
          ptx::tma_load_3d(stage, &x_map, barrier, 0, 0, depth_tile, ptx::evict_last);
          if constexpr (Tile::bits == 4) {
            const int32_t column = block * p.plan.tiles * kWeightColumns;
            const int32_t group = chunk * p.plan.parts * Tile::repeats * Tile::groups;
            ptx::tma_load_3d(stage + p.scales_at, &scales_map, barrier, column, group, 0, ptx::evict_first);
            if (p.has_zeros) {
              ptx::tma_load_3d(stage + p.zeros_at, &zeros_map, barrier, column, group, 0, ptx::evict_first);
            }
          }
          at.advance(p.stages);
        }
      }
    }
    __syncwarp();
  }
  const int tile = warp % p.plan.tiles, part = warp / p.plan.tiles;
  const bool shared = consumers * cluster > p.plan.tiles;  // columns have several warps
  FewRowsRing at;
  if (warp < consumers) {
    for (int32_t block = first_block; block < p.column_blocks; block += block_step) {
      float total[Tile::registers];
#pragma unroll
      for (int r = 0; r < Tile::registers; ++r) total[r] = 0.0f;
      sum_stages<Tile>(p, total, at, last - first, tile, part, stages, full, empty);
      if (shared) {
        // All stages have been read once the warps meet. A block that shares its columns has one column block.
        ptx::bar_sync(1, consumers * 32);
#pragma unroll
        for (int j = 0; j < Tile::registers / 4; ++j) {
          ptx::store_shared_vector(stages + ((warp * (Tile::registers / 4) + j) * 32 + lane) * 16,
                                   make_float4(total[4 * j], total[4 * j + 1], total[4 * j + 2], total[4 * j + 3]));
        }
      } else {
#pragma unroll
        for (int j = 0; j < Tile::registers / 4; ++j) {
          store_results<Tile>(p, make_float4(total[4 * j], total[4 * j + 1], total[4 * j + 2], total[4 * j + 3]), lane,
                              j, block * p.plan.tiles + tile);
        }
      }
    }
  }
  if (!shared) return;
  __syncwarp();
  if (cluster > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  if (warp < consumers) {
    // Eight rows of a packed tile are 32 vectors, which a warp adds at a time.
    const int vectors = p.plan.tiles * (Tile::registers / 4);
    for (int i = rank * consumers + warp; i < vectors; i += cluster * consumers) {
      const int j = i % (Tile::registers / 4), of_tile = i / (Tile::registers / 4);
      // A load whose result is stored nowhere could still be on its way when its block has gone.
      if (8 * j + lane % 4 * 2 >= p.m || first_block * p.plan.tiles + of_tile >= p.column_tiles) continue;
      float4 some[kMostSharers];
#pragma unroll
      for (int from = 0; from < kMostSharers; ++from) {  // all on their way at once
        if (from >= cluster * p.plan.parts) break;
        const int vector = (from % p.plan.parts * p.plan.tiles + of_tile) * (Tile::registers / 4) + j;
        some[from] = ptx::ld_cluster_vector(ptx::mapa(stages + (vector * 32 + lane) * 16, from / p.plan.parts));
      }
      float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int from = 0; from < kMostSharers; ++from) {
        if (from >= cluster * p.plan.parts) break;
        sums.x += some[from].x, sums.y += some[from].y, sums.z += some[from].z, sums.w += some[from].w;
      }
      store_results<Tile>(p, sums, lane, j, first_block * p.plan.tiles + of_tile);
    }
  }
  // A peer may still read this block's sums.
  if (cluster > 1) {
    __syncwarp();
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
#endif
}

template <ScalarType Type, int Bits, int Group, int Rows, int Repeats>
constexpr Kernel few_rows_kernel(const char* name) {
  using Tile = FewRowsTile<typename ElementOf<Type>::type, Bits, Group, Rows, Repeats>;
  return {name,
          reinterpret_cast<const void*>(&weight_only_few_rows<Tile>),
          Type,
          Bits,
          Group,
          Rows,
          Tile::threads,
          kFewRowsSharedBytes,
          kFewRowsBlocksPerSm,
          Repeats};
}

// clang-format off: one kernel a line
template <ScalarType Type>
KernelList few_rows_list() {
  static const Kernel kernels[] = {
      few_rows_kernel<Type, 4, 64, 8, 1>("few rows int4 groups of 64 8 rows"),
      few_rows_kernel<Type, 4, 64, 16, 1>("few rows int4 groups of 64 16 rows"),
      few_rows_kernel<Type, 4, 128, 8, 1>("few rows int4 groups of 128 8 rows"),
      few_rows_kernel<Type, 4, 128, 16, 1>("few rows int4 groups of 128 16 rows"),
      few_rows_kernel<Type, 8, 0, 8, 1>("few rows int8 8 rows"),
      few_rows_kernel<Type, 8, 0, 16, 1>("few rows int8 16 rows"),
      few_rows_kernel<Type, 4, 64, 8, 2>("few rows int4 groups of 64 8 rows, 256 of k"),
      few_rows_kernel<Type, 4, 128, 8, 2>("few rows int4 groups of 128 8 rows, 256 of k"),
      few_rows_kernel<Type, 8, 0, 8, 2>("few rows int8 8 rows, 256 of k"),
  };
  return kernels;
}
// clang-format on

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
