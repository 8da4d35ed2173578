// FP8 products on Hopper with persistent blocks: each block walks over tiles of (128 or 256) x n, group after group.
//
//   way             tile number -> Tiles -> for each 128 of k: TMA loads into a stage (producer), four wgmma of k32 from
//                   the stage (consumers) -> sums in float32 -> store_tile(): panel in shared memory -> TMA -> out
//   warps 0 .. 7    two consumer warpgroups, each with half the rows of the tile: `waves` times 64
//   last warpgroup  One thread is the producer. It runs ahead over the tile borders, limited by the stages only. The
//                   warpgroup gives registers to the consumers.
//   promotion       A wave of 64 rows is summed over 128 of k in the tensor core, which keeps few bits, and then added
//                   to float32 sums, times the scales where those vary along k. All waves use the same accumulators.
//                   While a warpgroup adds, the other one multiplies. Fast sums: over kFp8FastBlocks times 128 of k,
//                   whose stages are held until the last wave has read them.
//
//   shared memory   [stage 0: P | Q] ... [stage S - 1]  [warpgroup 0: 2 output panels] ... [full S][empty S]
//   cluster         two blocks beside each other along n, which share P: each loads half of it and multicasts that
//   barriers        full[s]: 1 arrival, and the bytes of this producer and of the one that it shares with
//                   empty[s]: 8 consumer warps of each block of the cluster
//   epilogue        Panels of 64 x 128 bytes: registers -> stmatrix (swizzled) -> TMA store. Two panels take turns. A
//                   tile that ends inside a group, a float32 result, and one that TMA cannot describe are stored from
//                   registers.
//
// The next grid starts at once (griddepcontrol.cuh).
#pragma once

#include "../../gemm/sm90/mainloop.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/shared_pair.cuh"
#include "store.cuh"
#include "tiles.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

using cuda::sm90::Position;

constexpr int kPanelBytes = 64 * 128, kPanels = 2, kWarpgroups = 2;

// BlocksTogether: blocks of k between two promotions.
template <typename P_, int Waves, int TileN, int Stages, bool BlockScales, int BlocksTogether>
struct Tile {
  using P = P_;
  static constexpr int waves = Waves, m = kWarpgroups * Waves * 64, n = TileN, stages = Stages;
  static constexpr bool block_scales = BlockScales;
  static constexpr int blocks_together = BlocksTogether;
  static constexpr int registers = TileN / 2;  // accumulators a thread, of one wave
  static constexpr int threads = (kWarpgroups + 1) * 128;
  static constexpr int p_bytes = m * kFp8Block, q_bytes = n * kFp8Block, stage_bytes = p_bytes + q_bytes;
  static constexpr int shared_bytes = Stages * (stage_bytes + 16) + kWarpgroups * kPanels * kPanelBytes;
  static_assert(!BlockScales || kFp8Block % TileN == 0, "a tile has one scale of b for each block of k");
  static_assert(!BlockScales || BlocksTogether == 1, "each block of k has scales of its own");
  static_assert(BlocksTogether <= Stages, "the waves read the same stages, one wave after the other");
  static_assert(TileN % 64 == 0 && q_bytes % 1024 == 0);
};

// A wave's products of one stage, over 128 of k. Asynchronous: commits a group.
template <typename Tile>
__device__ __forceinline__ void multiply(float (&d)[Tile::registers], uint64_t p, uint64_t q, bool accumulate) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kFp8Block / 32; ++step) {
    ptx::Wgmma<Tile::n>::template ss_fp8<typename Tile::P, ptx::E4m3>(d, p + step * 2, q + step * 2,
                                                                      step > 0 || accumulate);
  }
  ptx::wgmma_commit_group();
}

// A panel of 64 rows x 32 float32 columns, stored by the threads: a row at a time a warp, along the row.
__device__ __forceinline__ void store_panel(const Fp8GemmArguments& g, uint32_t panel, int row, int end, int column) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  if (column + lane >= g.n) return;
#pragma unroll 1
  for (int line = warp; line < min(64, end - row); line += 4) {
    const float value = ptx::ld_shared(panel + line * 128 + ((lane / 4) ^ (line % 8)) * 16 + lane % 4 * 4);
    store_number(g, row + line, column + lane, value);
  }
}

// The scales of the tile's columns, and behind them the bias, into shared memory at `columns`. Those beyond the last
// column are anything: nobody stores what comes of them.
template <typename Tile>
__device__ __forceinline__ void load_columns(const Fp8GemmArguments& g, const float* scales_b, uint32_t columns,
                                             int column) {
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < Tile::n; i += 128) {
    const int at = min(column + i, g.n - 1);
    ptx::st_shared(columns + i * 4, Tile::block_scales ? 1.0f : scale_of_column(g, scales_b, at));
    ptx::st_shared(columns + (Tile::n + i) * 4, bias_of(g, at));
  }
}

// The sums of 64 rows from `row` become values of out.
template <typename Tile>
__device__ __forceinline__ void finish_wave(float (&d)[Tile::registers], const Fp8GemmArguments& g, uint32_t columns,
                                            int row, int end) {
  const int lane = threadIdx.x % 32, upper = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
  float of_upper = 1.0f, of_lower = 1.0f;
  if constexpr (!Tile::block_scales) {
    of_upper = scale_of_row(g, min(upper, end - 1));
    of_lower = scale_of_row(g, min(upper + 8, end - 1));
  }
#pragma unroll
  for (int j = 0; j < Tile::n / 8; ++j) {
    const uint32_t at = columns + (j * 8 + lane % 4 * 2) * 4;
    const float2 factor = ptx::load_shared_pair(at), bias = ptx::load_shared_pair(at + Tile::n * 4);
    d[4 * j] = d[4 * j] * (of_upper * factor.x) + bias.x;
    d[4 * j + 1] = d[4 * j + 1] * (of_upper * factor.y) + bias.y;
    d[4 * j + 2] = d[4 * j + 2] * (of_lower * factor.x) + bias.x;
    d[4 * j + 3] = d[4 * j + 3] * (of_lower * factor.y) + bias.y;
  }
}

// Writes 64 rows from `row`. `buffer` is the next panel; TMA may still be reading the one before it.
template <typename Tile>
__device__ __forceinline__ void store_wave(const float (&d)[Tile::registers], const KernelArguments& arguments,
                                           const CUtensorMap* out_map, uint32_t panels, int& buffer, int barrier,
                                           int row, int end, int column) {
  const Fp8GemmArguments& g = arguments.g;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const auto begin_panel = [&] {
    if (thread == 0) ptx::bulk_wait_group_read<kPanels - 1>();
    ptx::bar_sync(barrier, 128);
    return panels + buffer * kPanelBytes;
  };
  // TMA leaves out rows beyond those of out, but not those of the next group.
  if (!arguments.tma_store || (row + 64 > end && end != g.m)) {
#pragma unroll
    for (int part = 0; part < Tile::n / 32; ++part) {
      const uint32_t panel = begin_panel();
      const uint32_t line = panel + (warp * 16 + lane / 4) * 128 + lane % 2 * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = part * 16 + j * 4;
        const uint32_t to = line + ((j * 2 + lane % 4 / 2) ^ (lane / 4)) * 16;
        ptx::st_shared_v2(to, d[r], d[r + 1]);
        ptx::st_shared_v2(to + 8 * 128, d[r + 2], d[r + 3]);
      }
      ptx::bar_sync(barrier, 128);
      store_panel(g, panel, row, end, column + part * 32);
      buffer = (buffer + 1) % kPanels;
    }
    return;
  }
#pragma unroll
  for (int part = 0; part < Tile::n / 64; ++part) {
    const uint32_t panel = begin_panel();
    // Lane l addresses row l % 8 of matrix l / 8: matrices 0, 1 are the upper and lower 8 rows of 8 columns, 2, 3 those
    // of the next 8.
    const uint32_t line = panel + (warp * 16 + lane / 8 % 2 * 8 + lane % 8) * 128;
    const auto pack = [&](auto type) {
      using T = decltype(type);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int r = part * 32 + pair * 8;
        ptx::stmatrix_x4(line + ((pair * 2 + lane / 16) ^ (lane % 8)) * 16, ptx::cvt_rn_x2<T>(d[r], d[r + 1]),
                         ptx::cvt_rn_x2<T>(d[r + 2], d[r + 3]), ptx::cvt_rn_x2<T>(d[r + 4], d[r + 5]),
                         ptx::cvt_rn_x2<T>(d[r + 6], d[r + 7]));
      }
    };
    g.out_type == ScalarType::bfloat16 ? pack(__nv_bfloat16{}) : pack(__half{});
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(barrier, 128);
    if (thread == 0) {
      ptx::tma_store_3d(out_map, panel, column + part * 64, row, 0);
      ptx::bulk_commit_group();
    }
    buffer = (buffer + 1) % kPanels;
  }
}

// The scales of a wave's rows, and of the tile's columns, in one block of k.
template <int Waves>
struct BlockScales {
  float upper[Waves], lower[Waves];

  __device__ __forceinline__ void load(const Fp8GemmArguments& g, const float* scales_b, int row, int end, int column,
                                       int block) {
    const float of_b = __ldg(scales_b + column / kFp8Block * g.scale_b_stride_n + block * g.scale_b_stride_k);
    const float* const of_a = g.scale_a + block * g.scale_a_stride_k;
#pragma unroll
    for (int w = 0; w < Waves; ++w) {
      const int at = row + w * 64;
      upper[w] = at < end ? __ldg(of_a + at * g.scale_a_stride_m) * of_b : 0.0f;
      lower[w] = at + 8 < end ? __ldg(of_a + (at + 8) * g.scale_a_stride_m) * of_b : 0.0f;
    }
  }
};

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, 1)
    fp8_persistent(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap out_map, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t panels = stages + Tile::stages * Tile::stage_bytes;
  const uint32_t full = panels + kWarpgroups * kPanels * kPanelBytes;
  const uint32_t empty = full + Tile::stages * 8;
  const Fp8GemmArguments& g = arguments.g;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int cluster = arguments.cluster;
  const int rank = cluster == 1 ? 0 : ptx::cluster_ctarank();
  const int first = blockIdx.x / cluster, step = gridDim.x / cluster;

  if (warp == kWarpgroups * 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
      if (arguments.tma_store) ptx::prefetch_tensormap(&out_map);
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4 * kWarpgroups * cluster);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (cluster > 1) {
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  Tiles tiles;
  const auto column_of = [&] { return (tiles.n * cluster + rank) * Tile::n; };
  if (warp >= kWarpgroups * 4) {
    ptx::setmaxnreg_dec<40>();
    if (warp == kWarpgroups * 4 && ptx::elect_sync()) {
      const int part = Tile::m / cluster * rank;  // the rows of P that this block loads
      const auto everyone = static_cast<uint16_t>((1 << cluster) - 1);
      Position at;
      for (int tile = first; tiles.find<Tile::m>(arguments, tile); tile += step) {
        const int row = tiles.row + part, column = column_of(), group = tiles.group;
        for (int block = 0; block < arguments.k_blocks; ++block) {
          const uint32_t stage = stages + at.stage * Tile::stage_bytes, barrier = full + at.stage * 8;
          ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(barrier, Tile::stage_bytes);
          if (cluster == 1) {
            ptx::tma_load_3d(stage, &p_map, barrier, block * kFp8Block, row, 0, ptx::evict_normal);
          } else {
            ptx::tma_load_3d_multicast(stage + part * kFp8Block, &p_map, barrier, block * kFp8Block, row, 0, everyone,
                                       ptx::evict_normal);
          }
          ptx::tma_load_3d(stage + Tile::p_bytes, &q_map, barrier, block * kFp8Block, column, group, ptx::evict_normal);
          at.advance<Tile::stages>();
        }
      }
    }
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<232>();
    const int warpgroup = warp / 4, lane = threadIdx.x % 32;
    uint32_t loaders_empty = empty;
    if (cluster > 1) loaders_empty = ptx::mapa(empty, lane < cluster ? lane : rank);
    const auto release = [&](int stage) {
      if (cluster == 1) {
        if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
      } else {
        if (lane < cluster) ptx::mbarrier_arrive_remote(loaders_empty + stage * 8);
      }
    };
    const uint64_t p_base = ptx::k_major_descriptor(stages + warpgroup * Tile::waves * 64 * kFp8Block);
    const uint64_t q_base = ptx::k_major_descriptor(stages + Tile::p_bytes);
    constexpr int kStageStep = Tile::stage_bytes / 16, kWaveStep = 64 * kFp8Block / 16;  // as descriptors count
    const uint32_t my_panels = panels + warpgroup * kPanels * kPanelBytes;
    Position at;
    int buffer = 0;
    for (int tile = first; tiles.find<Tile::m>(arguments, tile); tile += step) {
      const int row = tiles.row + warpgroup * Tile::waves * 64, column = column_of(), end = tiles.rows.end;
      const float* const scales_b = g.scale_b + tiles.group * g.scale_b_stride_group;
      float sums[Tile::waves][Tile::registers];
#pragma unroll
      for (int w = 0; w < Tile::waves; ++w) {
#pragma unroll
        for (int r = 0; r < Tile::registers; ++r) sums[w][r] = 0.0f;
      }
      float d[Tile::registers];
      BlockScales<Tile::waves> now, next;
      const int my_row = row + warp % 4 * 16 + lane / 4;
      const int scaled_column = min(column, g.n - 1);
      if constexpr (Tile::block_scales) now.load(g, scales_b, my_row, end, scaled_column, 0);
      for (int block = 0; block < arguments.k_blocks; block += Tile::blocks_together) {
        const int together = Tile::blocks_together == 1 ? 1 : min(Tile::blocks_together, arguments.k_blocks - block);
        Position here;
#pragma unroll
        for (int w = 0; w < Tile::waves; ++w) {
          here = at;
          int previous = at.stage;
          ptx::wgmma_fence_operand(d);
          for (int i = 0; i < together; ++i) {
            if (w == 0) ptx::mbarrier_wait(full + here.stage * 8, here.phase);
            multiply<Tile>(d, p_base + here.stage * kStageStep + w * kWaveStep, q_base + here.stage * kStageStep,
                           i > 0);
            if (w == Tile::waves - 1 && i > 0) {
              ptx::wgmma_wait_group<1>();
              release(previous);
            }
            previous = here.stage;
            here.advance<Tile::stages>();
          }
          if constexpr (Tile::block_scales) {
            if (w == 0) next.load(g, scales_b, my_row, end, scaled_column, min(block + 1, arguments.k_blocks - 1));
          }
          ptx::wgmma_wait_group<0>();
          ptx::wgmma_fence_operand(d);
          if (w == Tile::waves - 1) release(previous);
#pragma unroll
          for (int r = 0; r < Tile::registers; ++r) {
            if constexpr (Tile::block_scales) {
              sums[w][r] += d[r] * (r % 4 < 2 ? now.upper[w] : now.lower[w]);
            } else {
              sums[w][r] += d[r];
            }
          }
        }
        if constexpr (Tile::block_scales) now = next;
        at = here;
      }
      // The next panel holds the columns' scales first: no store may still read it then, nor the panel after it.
      if (threadIdx.x % 128 == 0) ptx::bulk_wait_group_read<0>();
      ptx::bar_sync(1 + warpgroup, 128);
      const uint32_t columns = my_panels + buffer * kPanelBytes;
      load_columns<Tile>(g, scales_b, columns, column);
      ptx::bar_sync(1 + warpgroup, 128);
      buffer = (buffer + 1) % kPanels;
#pragma unroll
      for (int w = 0; w < Tile::waves; ++w) finish_wave<Tile>(sums[w], g, columns, row + w * 64, end);
#pragma unroll
      for (int w = 0; w < Tile::waves; ++w) {
        if (row + w * 64 >= end) break;
        store_wave<Tile>(sums[w], arguments, &out_map, my_panels, buffer, 1 + warpgroup, row + w * 64, end, column);
      }
    }
    if (threadIdx.x % 128 == 0) ptx::bulk_wait_group<0>();
  }
  // A peer's arrival or multicast must not find a block that has gone.
  if (cluster > 1) {
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
#endif
}

template <typename Tile>
constexpr Kernel persistent_kernel(const char* name) {
  return {name,
          reinterpret_cast<const void*>(&fp8_persistent<Tile>),
          ptx::is_e5m2<typename Tile::P> ? Fp8Type::e5m2 : Fp8Type::e4m3,
          false,
          Tile::block_scales,
          Tile::blocks_together > 1,
          Tile::m,
          Tile::n,
          kFp8Block,
          Tile::stages,
          Tile::threads,
          Tile::shared_bytes,
          1};
}

template <typename P>
KernelList persistent_list() {
  static const Kernel kernels[] = {
      persistent_kernel<Tile<P, 2, 128, 4, false, 1>>("persistent 256x128"),
      persistent_kernel<Tile<P, 1, 128, 6, false, 1>>("persistent 128x128"),
      persistent_kernel<Tile<P, 1, 64, 8, false, 1>>("persistent 128x64"),
      persistent_kernel<Tile<P, 1, 192, 4, false, 1>>("persistent 128x192"),
      persistent_kernel<Tile<P, 2, 128, 4, true, 1>>("persistent 256x128 block scales"),
      persistent_kernel<Tile<P, 1, 128, 6, true, 1>>("persistent 128x128 block scales"),
      persistent_kernel<Tile<P, 1, 64, 8, true, 1>>("persistent 128x64 block scales"),
      persistent_kernel<Tile<P, 2, 128, 4, false, kFp8FastBlocks>>("persistent 256x128 fast sums"),
      persistent_kernel<Tile<P, 1, 128, 6, false, kFp8FastBlocks>>("persistent 128x128 fast sums"),
      persistent_kernel<Tile<P, 1, 192, 4, false, kFp8FastBlocks>>("persistent 128x192 fast sums"),
  };
  return kernels;
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
