// FP8 products on Hopper with persistent blocks: each block walks over tiles of (128, 192 or 256) x n, group after group.
//
//   way             tile number -> Tiles -> for each 128 of k: TMA loads into a stage (producer), four wgmma of k32 from
//                   the stage (consumers) -> sums in float32 -> store_tile(): panel in shared memory -> TMA -> out
//   warps 0 ..      two or three consumer warpgroups. A wave is 64 rows of each; a tile has one or two waves, one below
//                   the other. What has no row of the tile's group is left out.
//   last warpgroup  One thread is the producer. It runs ahead over the tile borders, limited by the stages only. Where
//                   scales vary along k, a second warp copies them to shared memory. The other two write zeros where
//                   rows belong to no group. The warpgroup gives registers to the consumers.
//   promotion       A wave of 64 rows is summed over 128 of k in the tensor core, which keeps few bits, and then added
//                   to float32 sums, times the scales where those vary along k. All waves use the same accumulators.
//                   While a warpgroup adds, the others multiply. With three of them the tensor cores never wait, but
//                   registers are left for one wave each.
//
//   shared memory   [stage 0: P | Q] ... [stage S - 1]  [warpgroup 0: 2 output panels] ... [full S][empty S]
//                   [warpgroup 0: scales of its columns | of its rows] ...
//                   or, if they vary along k: [slot 0: scales of the tile's rows | of its columns] ... [full][empty]
//   cluster         two blocks beside each other along n, which share P: each loads half of it and multicasts that
//   barriers        full[s]: 1 arrival, and the bytes of this producer and of the one that it shares with
//                   empty[s]: all consumer warps of each block of the cluster
//   scale slots     One for each block of k, ahead of the consumers. cp.async takes any strides, and rows that begin
//                   anywhere. full[slot]: the 32 lanes of the second warp, when their copies have arrived; empty[slot]:
//                   all consumer warps. Consumers read a slot while their products are on their way.
//   epilogue        Scales that do not vary along k are copied to shared memory while the tile is multiplied. Panels of
//                   64 x 128 bytes: registers -> stmatrix (swizzled) -> TMA store. Two panels take turns. A tile that
//                   ends inside a group, a float32 result, and one that TMA cannot describe are stored from registers.
//
// The next grid starts at once (griddepcontrol.cuh).
#pragma once

#include <type_traits>

#include "../../gemm/sm90/mainloop.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/cp_async_mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/shared_pair.cuh"
#include "../../ptx/special_registers.cuh"
#include "store.cuh"
#include "tiles.cuh"
#include "zeros.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

using cuda::sm90::Position;

constexpr int kPanelBytes = 64 * 128, kPanels = 2;

template <typename P_, int Warpgroups, int Waves, int TileN, int Stages, bool BlockScales>
struct Tile {
  using P = P_;
  static constexpr int warpgroups = Warpgroups, waves = Waves, m = Warpgroups * Waves * 64, n = TileN, stages = Stages;
  static constexpr bool block_scales = BlockScales;
  static constexpr int wave_rows = Warpgroups * 64;  // of all warpgroups: the next wave begins behind them
  static constexpr int registers = TileN / 2;        // accumulators a thread, of one wave
  // While the tensor cores multiply, the next stage is waited for and its descriptors are made, and the last stage is
  // released, so that there are only additions between two waves. With three warpgroups the tensor cores are busy
  // meanwhile, and stages that are held longer cost more.
  static constexpr bool ahead = Warpgroups == 2;
  static constexpr int threads = (Warpgroups + 1) * 128;
  // A scheduler has 512 registers a lane for its warps, one of each warpgroup.
  static constexpr int producer_registers = Warpgroups == 3 ? 32 : 40, consumer_registers = Warpgroups == 3 ? 160 : 232;
  static constexpr int p_bytes = m * kFp8Block, q_bytes = n * kFp8Block, stage_bytes = p_bytes + q_bytes;
  static constexpr int scale_bytes = BlockScales ? 0 : (TileN + Waves * 64) * 4;  // of a warpgroup
  static constexpr int scales_at = Stages * (stage_bytes + 16) + Warpgroups * kPanels * kPanelBytes;
  static constexpr int slots = !BlockScales ? 0 : m > 192 ? 2 : 4;  // a tile of 256 rows leaves room for no more
  static constexpr int slot_bytes = (m + 4) * 4;
  static constexpr int shared_bytes = scales_at + Warpgroups * scale_bytes + slots * (slot_bytes + 16);
  static_assert(shared_bytes <= 232448, "the most that a block may have");
  static_assert(!BlockScales || kFp8Block % TileN == 0, "a tile has one scale of b for each block of k");
  static_assert(TileN % 64 == 0 && q_bytes % 1024 == 0);
};

// A wave's products of one stage, over 128 of k. Asynchronous: commits a group.
template <typename Tile>
__device__ __forceinline__ void multiply(float (&d)[Tile::registers], uint64_t p, uint64_t q) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kFp8Block / 32; ++step) {
    ptx::Wgmma<Tile::n>::template ss_fp8<typename Tile::P, ptx::E4m3>(d, p + step * 2, q + step * 2, step > 0);
  }
  ptx::wgmma_commit_group();
}

// A panel of 64 rows x 32 float32 columns, stored by the threads: a row at a time a warp, along the row. Neighbours have
// changed places.
__device__ __forceinline__ void store_panel(const Fp8GemmArguments& g, uint32_t panel, int row, int end, int column) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  if (column + lane >= g.n) return;
#pragma unroll 1
  for (int line = warp; line < min(64, end - row); line += 4) {
    const float value = ptx::ld_shared(panel + line * 128 + ((lane / 4) ^ (line % 8)) * 16 + (lane % 4 ^ 1) * 4);
    store_number(g, row + line, column + lane, value);
  }
}

// Begins to copy the scales of a tile's columns, and behind them those of the warpgroup's rows, to shared memory. Those
// beyond the last column or row are anything: nobody stores what comes of them.
template <typename Tile>
__device__ __forceinline__ void copy_scales(const Fp8GemmArguments& g, const float* scales_b, uint32_t scales,
                                            int column, int row, int end) {
  const int thread = ptx::fresh_tid_x() % 128;
#pragma unroll
  for (int i = thread; i < Tile::n; i += 128) {
    ptx::cp_async_ca_4(scales + i * 4, scales_b + min(column + i, g.n - 1) * g.scale_b_stride_n, 4);
  }
#pragma unroll
  for (int i = thread; i < Tile::waves * 64; i += 128) {
    const int from = min(row + i / 64 * Tile::wave_rows + i % 64, end - 1);
    ptx::cp_async_ca_4(scales + (Tile::n + i) * 4, g.scale_a + from * g.scale_a_stride_m, 4);
  }
  ptx::cp_async_commit_group();
}

// The sums of a tile times the scales of their rows and columns, which have arrived.
template <typename Tile>
__device__ __forceinline__ void apply_scales(float (&d)[Tile::waves][Tile::registers], uint32_t scales) {
  const int lane = threadIdx.x % 32, line = threadIdx.x % 128 / 32 * 16 + lane / 4;
  float upper[Tile::waves], lower[Tile::waves];
#pragma unroll
  for (int w = 0; w < Tile::waves; ++w) {
    upper[w] = ptx::ld_shared(scales + (Tile::n + w * 64 + line) * 4);
    lower[w] = ptx::ld_shared(scales + (Tile::n + w * 64 + line + 8) * 4);
  }
#pragma unroll
  for (int j = 0; j < Tile::n / 8; ++j) {
    const float2 factor = ptx::load_shared_pair(scales + (j * 8 + lane % 4 * 2) * 4);
#pragma unroll
    for (int w = 0; w < Tile::waves; ++w) {
      d[w][4 * j] *= upper[w] * factor.x;
      d[w][4 * j + 1] *= upper[w] * factor.y;
      d[w][4 * j + 2] *= lower[w] * factor.x;
      d[w][4 * j + 3] *= lower[w] * factor.y;
    }
  }
}

// Adds the bias, by way of `shared`, which nobody reads.
template <typename Tile>
__device__ __forceinline__ void add_bias(float (&d)[Tile::waves][Tile::registers], const Fp8GemmArguments& g,
                                         uint32_t shared, int barrier, int column) {
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < Tile::n; i += 128) {
    ptx::st_shared(shared + i * 4, bias_of(g, min(column + i, g.n - 1)));
  }
  ptx::bar_sync(barrier, 128);
#pragma unroll
  for (int j = 0; j < Tile::n / 8; ++j) {
    const float2 bias = ptx::load_shared_pair(shared + (j * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
    for (int w = 0; w < Tile::waves; ++w) {
      d[w][4 * j] += bias.x;
      d[w][4 * j + 1] += bias.y;
      d[w][4 * j + 2] += bias.x;
      d[w][4 * j + 3] += bias.y;
    }
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
    // No group is committed here, so to wait for all but one would leave the last store of TMA at its panel.
    if (thread == 0) ptx::bulk_wait_group_read<0>();
#pragma unroll
    for (int part = 0; part < Tile::n / 32; ++part) {
      const uint32_t panel = begin_panel();
      const uint32_t line = panel + (warp * 16 + lane / 4) * 128 + lane % 2 * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = part * 16 + j * 4;
        const uint32_t to = line + ((j * 2 + lane % 4 / 2) ^ (lane / 4)) * 16;
        // The other way round, and read so. The first of the two must be in an even register, so that a sum's register is
        // odd where its accumulator's is even. An addition then reads both banks of registers.
        ptx::st_shared_v2(to, d[r + 1], d[r]);
        ptx::st_shared_v2(to + 8 * 128, d[r + 3], d[r + 2]);
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

// The scales that vary along k: copied to slots of shared memory by one warp, a block of k each, for all tiles.
template <typename Tile>
__device__ __forceinline__ void fill_slots(const KernelArguments& arguments, uint32_t slots, int first, Tiles& tiles) {
  const Fp8GemmArguments& g = arguments.g;
  const uint32_t full = slots + Tile::slots * Tile::slot_bytes, empty = full + Tile::slots * 8;
  const int lane = threadIdx.x % 32;
  Position at;
  for (int tile = first; tiles.find<Tile::m>(arguments, tile); tile += ptx::clusters_in_grid()) {
    const int row = tiles.row + lane;
    const float* of_a = g.scale_a + row * g.scale_a_stride_m;
    // The rank is read anew: one register more would be one too many.
    const int column = (tiles.n * arguments.cluster + static_cast<int>(ptx::cluster_ctarank())) * Tile::n;
    const float* of_b =
        g.scale_b + tiles.group * g.scale_b_stride_group + min(column, g.n - 1) / kFp8Block * g.scale_b_stride_n;
    for (int block = 0; block < arguments.k_blocks; ++block) {
      const uint32_t to = slots + at.stage * Tile::slot_bytes + lane * 4;
      ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
      const float* from = of_a;
      // Unrolled it would take more registers than this warp has.
#pragma unroll 1
      for (int i = 0; i < Tile::m; i += 32) {
        ptx::cp_async_ca_4(to + i * 4, from, row + i < tiles.rows.end ? 4 : 0);
        from += 32 * g.scale_a_stride_m;
      }
      if (lane == 0) ptx::cp_async_ca_4(to + Tile::m * 4, of_b, 4);
      ptx::cp_async_mbarrier_arrive_noinc(full + at.stage * 8);
      of_a += g.scale_a_stride_k;
      of_b += g.scale_b_stride_k;
      at.advance<Tile::slots>();
    }
  }
}

// The scales of a thread's rows times those of the tile's columns, in one block of k.
template <int WaveRows, int Waves>
struct Factors {
  float upper[Waves], lower[Waves];

  // `rows`: the scale of the thread's first row in the slot, `columns` that of the tile's columns.
  __device__ __forceinline__ void read(uint32_t rows, uint32_t columns) {
    const float of_b = ptx::ld_shared(columns);
#pragma unroll
    for (int w = 0; w < Waves; ++w) {
      upper[w] = ptx::ld_shared(rows + w * WaveRows * 4) * of_b;
      lower[w] = ptx::ld_shared(rows + (w * WaveRows + 8) * 4) * of_b;
    }
  }
};

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, 1)
    fp8_persistent(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap out_map, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  // Opaque: the compiler would derive it anew in each round, from a register that takes long to read.
  const auto stages = static_cast<uint32_t>(ptx::opaque(static_cast<int>(ptx::shared_address(shared_memory))));
  const uint32_t panels = stages + Tile::stages * Tile::stage_bytes;
  const uint32_t full = panels + Tile::warpgroups * kPanels * kPanelBytes;
  const uint32_t empty = full + Tile::stages * 8;
  const uint32_t scales = stages + Tile::scales_at;
  const uint32_t slots_full = scales + Tile::slots * Tile::slot_bytes, slots_empty = slots_full + Tile::slots * 8;
  const Fp8GemmArguments& g = arguments.g;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int cluster = arguments.cluster;
  const int rank = blockIdx.x & (cluster - 1);  // a cluster has one or two blocks
  const int first = blockIdx.x >> (cluster - 1);

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
      if (arguments.tma_store) ptx::prefetch_tensormap(&out_map);
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4 * Tile::warpgroups * cluster);
    }
    for (int s = 0; s < Tile::slots; ++s) {
      ptx::mbarrier_init(slots_full + s * 8, 32);
      ptx::mbarrier_init(slots_empty + s * 8, 128 * Tile::warpgroups);
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
  if (warp >= Tile::warpgroups * 4) {
    ptx::setmaxnreg_dec<Tile::producer_registers>();
    if (warp == Tile::warpgroups * 4 && ptx::elect_sync()) {
      const int part = Tile::m / cluster * rank;  // the rows of P that this block loads
      const auto everyone = static_cast<uint16_t>((1 << cluster) - 1);
      Position at;
      for (int tile = first; tiles.find<Tile::m>(arguments, tile); tile += ptx::clusters_in_grid()) {
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
    } else if (Tile::block_scales && warp == Tile::warpgroups * 4 + 1) {
      fill_slots<Tile>(arguments, scales, first, tiles);
    } else if (warp >= Tile::warpgroups * 4 + 2 && g.group_sizes != nullptr) {
      constexpr int kIdle = 64;  // threads of the last two warps
      clear_other_rows(g, int64_t{blockIdx.x} * kIdle + ptx::fresh_tid_x() % kIdle, int64_t{gridDim.x} * kIdle);
    }
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<Tile::consumer_registers>();
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
    const uint64_t p_base = ptx::k_major_descriptor(stages + warpgroup * 64 * kFp8Block);
    // As descriptors count:
    const int q_from_p = (Tile::p_bytes - warpgroup * 64 * kFp8Block) / 16;
    constexpr int kStageStep = Tile::stage_bytes / 16, kWaveStep = Tile::wave_rows * kFp8Block / 16;
    const uint32_t my_panels = panels + warpgroup * kPanels * kPanelBytes;
    const uint32_t my_factors = scales + (warpgroup * 64 + warp % 4 * 16 + lane / 4) * 4;
    Position at, slot;
    uint64_t p_at = p_base;  // the descriptor of stage `at`
    int buffer = 0;
    for (int tile = first; tiles.find<Tile::m>(arguments, tile); tile += ptx::clusters_in_grid()) {
      const int row = tiles.row + warpgroup * 64, column = column_of(), end = tiles.rows.end;
      const float* const scales_b = g.scale_b + tiles.group * g.scale_b_stride_group;
      const uint32_t my_scales = scales + warpgroup * Tile::scale_bytes;
      if constexpr (!Tile::block_scales) copy_scales<Tile>(g, scales_b, my_scales, column, row, end);
      float sums[Tile::waves][Tile::registers];
#pragma unroll
      for (int w = 0; w < Tile::waves; ++w) {
#pragma unroll
        for (int r = 0; r < Tile::registers; ++r) sums[w][r] = 0.0f;
      }
      // All blocks of k, of the first `Waves` waves.
      const auto multiply_waves = [&](auto waves) {
        constexpr int Waves = decltype(waves)::value;
        float d[Tile::registers];
        Factors<Tile::wave_rows, Waves> factors;
        int held = 0;  // a stage that has been read; it is released when the next products are on their way
        for (int block = 0; block < arguments.k_blocks; ++block) {
          Position here = at;
          here.advance<Tile::stages>();
#pragma unroll
          for (int w = 0; w < Waves; ++w) {
            ptx::wgmma_fence_operand(d);
            if (w == 0 && (!Tile::ahead || block == 0)) ptx::mbarrier_wait(full + at.stage * 8, at.phase);
            multiply<Tile>(d, p_at + w * kWaveStep, p_at + q_from_p);
            if (Tile::ahead && w == 0 && block > 0) release(held);
            if constexpr (Tile::block_scales) {
              if (w == 0) {
                ptx::mbarrier_wait(slots_full + slot.stage * 8, slot.phase);
                factors.read(my_factors + slot.stage * Tile::slot_bytes,
                             scales + slot.stage * Tile::slot_bytes + Tile::m * 4);
                ptx::wgmma_fence_operand(factors.upper);  // the multiplications come before the wait
                ptx::wgmma_fence_operand(factors.lower);
                // Every thread that has read arrives for itself: racecheck follows no arrival for others.
                ptx::mbarrier_arrive(slots_empty + slot.stage * 8);
                slot.advance<Tile::slots>();
              }
            }
            if (w == Waves - 1) {
              p_at = p_base + here.stage * kStageStep;
              if (Tile::ahead && arguments.k_blocks - block > 1) ptx::mbarrier_wait(full + here.stage * 8, here.phase);
            }
            ptx::wgmma_wait_group<0>();
            ptx::wgmma_fence_operand(d);
            if (w == Waves - 1) {
              held = at.stage;
              if (!Tile::ahead) release(held);
            }
#pragma unroll
            for (int r = 0; r < Tile::registers; ++r) {
              if constexpr (Tile::block_scales) {
                sums[w][r] += d[r] * (r % 4 < 2 ? factors.upper[w] : factors.lower[w]);
              } else {
                sums[w][r] += d[r];
              }
            }
          }
          at = here;
        }
        if constexpr (Tile::ahead) release(held);
      };
      // A second wave without a row is left out, as where a group ends early in a tile. By a vote the compiler knows that
      // all threads of a warp go the same way, and so keeps stages in registers that they share.
      const bool one_wave = Tile::waves == 2 && __any_sync(0xffffffff, tiles.row + Tile::wave_rows >= end);
      if (one_wave) {
        multiply_waves(std::integral_constant<int, 1>{});
      } else {
        multiply_waves(std::integral_constant<int, Tile::waves>{});
      }
      if constexpr (!Tile::block_scales) {
        ptx::cp_async_wait_group<0>();
        ptx::bar_sync(1 + warpgroup, 128);
        apply_scales<Tile>(sums, my_scales);
      }
      if (g.bias != nullptr) {
        // No store may still read the next panel, nor the one after it.
        if (threadIdx.x % 128 == 0) ptx::bulk_wait_group_read<0>();
        ptx::bar_sync(1 + warpgroup, 128);
        add_bias<Tile>(sums, g, my_panels + buffer * kPanelBytes, 1 + warpgroup, column);
        buffer = (buffer + 1) % kPanels;
      }
#pragma unroll
      for (int w = 0; w < Tile::waves; ++w) {
        const int first_row = row + w * Tile::wave_rows;
        if (first_row >= end) break;
        store_wave<Tile>(sums[w], arguments, &out_map, my_panels, buffer, 1 + warpgroup, first_row, end, column);
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
      persistent_kernel<Tile<P, 2, 2, 128, 4, false>>("persistent 256x128"),
      persistent_kernel<Tile<P, 3, 1, 128, 4, false>>("persistent 192x128"),
      persistent_kernel<Tile<P, 2, 1, 128, 6, false>>("persistent 128x128"),
      persistent_kernel<Tile<P, 2, 1, 64, 8, false>>("persistent 128x64"),
      persistent_kernel<Tile<P, 2, 1, 192, 4, false>>("persistent 128x192"),
      persistent_kernel<Tile<P, 2, 2, 128, 4, true>>("persistent 256x128 block scales"),
      persistent_kernel<Tile<P, 3, 1, 128, 4, true>>("persistent 192x128 block scales"),
      persistent_kernel<Tile<P, 2, 1, 128, 6, true>>("persistent 128x128 block scales"),
      persistent_kernel<Tile<P, 2, 1, 64, 8, true>>("persistent 128x64 block scales"),
  };
  return kernels;
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
