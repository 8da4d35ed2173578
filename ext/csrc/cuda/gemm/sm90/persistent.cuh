// GEMM on Hopper with persistent blocks: each block walks over tiles. There is one block per SM, or two of the small
// tiles. Two blocks leave room for a block of the next grid, which has begun by the time this one ends.
//
//   way             tile number -> TileCoordinates -> for each k block: TMA loads into a stage (producer), wgmma from
//                   the stage (consumers) -> store_tile(): registers -> panel in shared memory -> TMA store to out
//   warps 0 .. 4 W - 1   W consumer warpgroups, each with tile_m / W rows of the tile in registers. Ping-pong: two
//                   warpgroups take whole tiles in turn. While one stores a tile, the other multiplies.
//   last warp       One thread is the producer. It runs ahead over the tile borders, limited by the stages only, so
//                   that the next tile's loads overlap this tile's epilogue.
//   registers       128 accumulators a thread and 40 for the rest: a scheduler's 512 registers a lane make 168 for each
//                   of its three warps, so setmaxnreg is not needed. With three consumer warpgroups the producer has a
//                   whole warpgroup, of which three warps idle, and gives registers to the consumers. The same holds
//                   for ping-pong with up to 176 accumulators a thread.
//
//   shared memory   [stage 0: P | Q] ... [stage S - 1]  [warpgroup 0: 2 output panels] ... [full S][empty S]
//   cluster         cluster_m x cluster_n tiles, rank = m + cluster_m n. Multicast: a row of blocks shares P, a column
//                   shares Q.
//   barriers        full[s]: 1 arrival and the bytes, from this producer and from those that share with it.
//                   empty[s]: 4 warps x W (ping-pong: 1) x the blocks that read what this producer loads. A consumer
//                   arrives at every block that loads for it.
//                   turn (named, ping-pong, one for each warpgroup): the other warpgroup has waited for the last stage
//                   of its tile. The next stages belong to this one, each in the phase that it waits for.
//   epilogue        Panels of 64 x 128 bytes: registers -> stmatrix (swizzled) -> TMA store. Two panels take turns, so
//                   that TMA reads one while the threads write the next, also from tile to tile. With c, or where TMA
//                   cannot describe out, the threads store from float32 panels: store_panel().
//
// The next grid starts early (griddepcontrol.cuh). Usually it starts at once. Where the weights are read only once, it
// starts when this grid has issued its last loads, and then fetches its own first k blocks into L2, as in split_k.cuh.
#pragma once

#include "../../ptx/setmaxnreg.cuh"
#include "mainloop.cuh"

namespace cuda_llm_ops::cuda::sm90 {

constexpr int kPanelBytes = 64 * 128;

// Output panels of a warpgroup: two, where the stages leave room for them.
template <typename Tile, int BlocksPerSm>
__host__ __device__ constexpr int panels_a_warpgroup() {
  const int left = 233472 / BlocksPerSm - 1024 - Tile::stages * (Tile::stage_bytes + 16);
  return left >= Tile::warpgroups * 2 * kPanelBytes ? 2 : 1;
}

template <typename Tile, int BlocksPerSm>
constexpr int persistent_shared_bytes() {
  return Tile::stages * (Tile::stage_bytes + 16) +
         Tile::warpgroups * panels_a_warpgroup<Tile, BlocksPerSm>() * kPanelBytes;
}

// A panel of 64 rows x 32 float32 columns, written by the threads: a row at a time a warp, so that stores (and the
// loads of c) run along the rows of out.
template <typename T>
__device__ __forceinline__ void store_panel(const KernelArguments& arguments, uint32_t panel, int row, int column,
                                            int batch) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  const int at_column = column + lane;
  if (at_column >= arguments.columns) return;
  for (int line = warp; line < min(64, arguments.rows - row); line += 4) {
    const uint32_t chunk = (lane / 4) ^ (line % 8);
    float value = arguments.alpha * ptx::ld_shared(panel + line * 128 + chunk * 16 + lane % 4 * 4);
    if (arguments.beta != 0.0f) value += arguments.beta * load_c<T>(arguments, batch, row + line, at_column);
    const int64_t offset = (static_cast<int64_t>(batch) * arguments.rows + row + line) * arguments.columns + at_column;
    if (arguments.out_float) {
      static_cast<float*>(arguments.out)[offset] = value;
    } else {
      static_cast<T*>(arguments.out)[offset] = narrow<T>(value);
    }
  }
}

// Where panel `part` of `width` columns begins in a tile. The last one is moved back to end with the tile: columns that
// it shares with its neighbour are written twice, with the same values.
template <typename Tile>
__host__ __device__ constexpr int panel_column(int part, int width) {
  return (part + 1) * width <= Tile::n ? part * width : Tile::n - width;
}

// Writes a warpgroup's accumulators: 64 * m64s rows from `row`, tile_n columns from `column`. `Panels` of shared memory
// in turn, from tile to tile as within one: `buffer` is the next, and TMA may still be reading the one before it.
template <typename Tile, int Panels, bool Swap>
__device__ __forceinline__ void store_tile(float (&d)[Tile::m64s][Tile::registers], const KernelArguments& arguments,
                                           const CUtensorMap* out_map, uint32_t panels, int& buffer, int barrier,
                                           int row, int column, int batch) {
  using T = typename Tile::T;
  const int thread = threadIdx.x % 128;
  const int warp = thread / 32, lane = thread % 32;

  if (arguments.tma_store && arguments.alpha != 1.0f) {
#pragma unroll
    for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
      for (int r = 0; r < Tile::registers; ++r) d[i][r] *= arguments.alpha;
    }
  }

  const auto begin_panel = [&] {
    if (thread == 0) ptx::bulk_wait_group_read<Panels - 1>();
    ptx::bar_sync(barrier, 128);
    return panels + buffer * kPanelBytes;
  };
  // Swap: D is out transposed.
  const auto end_panel = [&](uint32_t panel, int at_row, int at_column) {
    if (arguments.tma_store) ptx::fence_proxy_async_shared();
    ptx::bar_sync(barrier, 128);
    if (!arguments.tma_store) {
      store_panel<T>(arguments, panel, at_row, at_column, batch);
    } else if (thread == 0) {
      ptx::tma_store_3d(out_map, panel, at_column, at_row, batch);
      ptx::bulk_commit_group();
    }
    buffer = (buffer + 1) % Panels;
  };

  // The loop over panels stays a loop, with the panel's registers chosen by comparison: barriers, stores and their
  // addresses then exist once, not once a panel.
  if constexpr (Swap) {
    constexpr int kParts = (Tile::n + 63) / 64;
    if (arguments.out_float) {
      // A line of the panel is 32 rows of D long, so two warps have one half of a panel's 64 rows, two the other.
#pragma unroll 1
      for (int index = 0; index < Tile::m64s * kParts * 2; ++index) {
        const uint32_t panel = begin_panel();
        const int row_of_line = warp % 2 * 16 + lane / 4;
        if (warp / 2 == index % 2) {
#pragma unroll
          for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
              if (index / 2 != i * kParts + part) continue;
#pragma unroll
              for (int g = 0; g < 8; ++g) {
                const int r = panel_column<Tile>(part, 64) / 2 + g * 4;
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                  const int line = g * 8 + lane % 4 * 2 + e % 2, at = row_of_line + e / 2 * 8;
                  ptx::st_shared(panel + line * 128 + ((at / 4) ^ (line % 8)) * 16 + at % 4 * 4, d[i][r + e]);
                }
              }
            }
          }
        }
        end_panel(panel, column + panel_column<Tile>(index / 2 % kParts, 64),
                  row + index / 2 / kParts * 64 + index % 2 * 32);
      }
      return;
    }
#pragma unroll 1
    for (int index = 0; index < Tile::m64s * kParts; ++index) {
      const uint32_t panel = begin_panel();
      // A line of the panel is a row of out, 64 rows of D long. Lane l addresses line l % 8 of matrix l / 8: matrices
      // 0, 1 are the upper and lower 8 rows of 8 columns of D, 2, 3 those of the next 8.
      const uint32_t line = panel + (lane / 16 * 8 + lane % 8) * 128 + ((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll
      for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          if (index != i * kParts + part) continue;
#pragma unroll
          for (int g = 0; g < 4; ++g) {
            const int r = panel_column<Tile>(part, 64) / 2 + g * 8;
            ptx::stmatrix_x4_trans(line + g * 16 * 128, ptx::cvt_rn_x2<T>(d[i][r], d[i][r + 1]),
                                   ptx::cvt_rn_x2<T>(d[i][r + 2], d[i][r + 3]),
                                   ptx::cvt_rn_x2<T>(d[i][r + 4], d[i][r + 5]),
                                   ptx::cvt_rn_x2<T>(d[i][r + 6], d[i][r + 7]));
          }
        }
      }
      end_panel(panel, column + panel_column<Tile>(index % kParts, 64), row + index / kParts * 64);
    }
    return;
  }
  if (arguments.out_float || !arguments.tma_store) {
    constexpr int kParts = (Tile::n + 31) / 32;
#pragma unroll 1
    for (int index = 0; index < Tile::m64s * kParts; ++index) {
      const uint32_t panel = begin_panel();
      const uint32_t line = panel + (warp * 16 + lane / 4) * 128 + lane % 2 * 8;
#pragma unroll
      for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          if (index != i * kParts + part) continue;
#pragma unroll
          for (int g = 0; g < 4; ++g) {
            const int r = panel_column<Tile>(part, 32) / 2 + g * 4;
            const uint32_t to = line + ((g * 2 + lane % 4 / 2) ^ (lane / 4)) * 16;
            ptx::st_shared_v2(to, d[i][r], d[i][r + 1]);
            ptx::st_shared_v2(to + 8 * 128, d[i][r + 2], d[i][r + 3]);
          }
        }
      }
      end_panel(panel, row + index / kParts * 64, column + panel_column<Tile>(index % kParts, 32));
    }
  } else {
    constexpr int kParts = (Tile::n + 63) / 64;
#pragma unroll 1
    for (int index = 0; index < Tile::m64s * kParts; ++index) {
      const uint32_t panel = begin_panel();
      // Lane l addresses row l % 8 of matrix l / 8: matrices 0, 1 are the upper and lower 8 rows of 8 columns, 2, 3
      // those of the next 8.
      const uint32_t line = panel + (warp * 16 + lane / 8 % 2 * 8 + lane % 8) * 128;
#pragma unroll
      for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          if (index != i * kParts + part) continue;
#pragma unroll
          for (int g = 0; g < 4; ++g) {
            const int r = panel_column<Tile>(part, 64) / 2 + g * 8;
            ptx::stmatrix_x4(line + ((g * 2 + lane / 16) ^ (lane % 8)) * 16, ptx::cvt_rn_x2<T>(d[i][r], d[i][r + 1]),
                             ptx::cvt_rn_x2<T>(d[i][r + 2], d[i][r + 3]), ptx::cvt_rn_x2<T>(d[i][r + 4], d[i][r + 5]),
                             ptx::cvt_rn_x2<T>(d[i][r + 6], d[i][r + 7]));
          }
        }
      }
      end_panel(panel, row + index / kParts * 64, column + panel_column<Tile>(index % kParts, 64));
    }
  }
}

template <typename Tile, bool Swap, int BlocksPerSm>
__global__ void __launch_bounds__(Tile::threads, BlocksPerSm)
    persistent_gemm(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                    const __grid_constant__ CUtensorMap out_map, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t panels = stages + Tile::stages * Tile::stage_bytes;
  constexpr int kPanelsEach = panels_a_warpgroup<Tile, BlocksPerSm>();
  const uint32_t full = panels + Tile::warpgroups * kPanelsEach * kPanelBytes;
  const uint32_t empty = full + Tile::stages * 8;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int cluster_size = arguments.cluster_m * arguments.cluster_n;
  const int rank = cluster_size == 1 ? 0 : ptx::cluster_ctarank();

  const int first = blockIdx.x / cluster_size, step = gridDim.x / cluster_size;
  const int my_n = rank / arguments.cluster_m, my_m = rank - my_n * arguments.cluster_m;

  const auto first_row = [&](const TileCoordinates& at) {
    return tile_start<Tile::m, Tile::p_mn_major>((at.m * arguments.cluster_m + my_m) * Tile::m, arguments.rows);
  };
  const auto first_column = [&](const TileCoordinates& at) {
    return tile_start<Tile::n, Tile::q_mn_major>((at.n * arguments.cluster_n + my_n) * Tile::n, arguments.columns);
  };

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
      if (arguments.tma_store) ptx::prefetch_tensormap(&out_map);
    }
    __syncwarp();
    prefetch_operands(arguments);
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4 * Tile::sharers * (arguments.cluster_m + arguments.cluster_n - 1));
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (cluster_size > 1) {
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
  if (arguments.ahead_blocks > 0 && warp < Tile::warpgroups * 4) {
    const TileCoordinates where(arguments, first);
    constexpr int kThreads = Tile::warpgroups * 128;
    if constexpr (Swap) {
      const int part = Tile::m / arguments.cluster_n;  // of a tile that the blocks of a row share
      fetch_ahead<Tile::k, Tile::p_mn_major>(arguments, first_row(where) + my_n * part, part, 0, threadIdx.x, kThreads);
    } else {
      const int part = Tile::n / arguments.cluster_m;
      fetch_ahead<Tile::k, Tile::q_mn_major>(arguments, first_column(where) + my_m * part, part, 0, threadIdx.x,
                                             kThreads);
    }
  }
  // The producer lets the next grid start before it loads this k block of its last tile. Negative: it starts now.
  const int late_block = arguments.late_blocks < 0 ? -1 : arguments.k_blocks - 1 - arguments.late_blocks;
  if (late_block < 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (warp >= Tile::warpgroups * 4) {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_dec<Tile::producer_registers>();
    if (warp == Tile::warpgroups * 4 && ptx::elect_sync()) {
      Share p_share, q_share;
      if (arguments.cluster_n > 1) {
        p_share.first = (Tile::p_mn_major ? Tile::k : Tile::m) / arguments.cluster_n * my_n;
        for (int i = 0; i < arguments.cluster_n; ++i) p_share.mask |= 1 << (my_m + i * arguments.cluster_m);
      }
      if (arguments.cluster_m > 1) {
        q_share.first = (Tile::q_mn_major ? Tile::k : Tile::n) / arguments.cluster_m * my_m;
        for (int i = 0; i < arguments.cluster_m; ++i) q_share.mask |= 1 << (i + my_n * arguments.cluster_m);
      }
      Position at;
      for (int tile = first; tile < arguments.tiles; tile += step) {
        const TileCoordinates where(arguments, tile);
        const int m = first_row(where), n = first_column(where);
        const int p_batch = arguments.p_batched ? where.batch : 0, q_batch = arguments.q_batched ? where.batch : 0;
        const bool last = tile + step >= arguments.tiles;
        for (int block = 0; block < arguments.k_blocks; ++block) {
          if (last && block == late_block) ptx::griddepcontrol_launch_dependents();
          const uint32_t stage = stages + at.stage * Tile::stage_bytes;
          ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(full + at.stage * 8, Tile::stage_bytes - arguments.clipped_bytes);
          load_operand<Tile::m, Tile::k, Tile::p_mn_major>(&p_map, stage, full + at.stage * 8, m, block * Tile::k,
                                                           p_batch, p_share);
          load_operand<Tile::q_extent, Tile::k, Tile::q_mn_major>(&q_map, stage + Tile::p_bytes, full + at.stage * 8, n,
                                                                  block * Tile::k, q_batch, q_share);
          at.advance<Tile::stages>();
        }
      }
    }
    __syncwarp();
  } else {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_inc<Tile::consumer_registers>();
    const int warpgroup = warp / 4;
    const int lane = threadIdx.x % 32;
    // The first lanes tell the blocks that load for this one that a stage is free: first the blocks of its column, then
    // the others of its row. Lane l arrives at block `loader`.
    const int readers = arguments.cluster_m + arguments.cluster_n - 1;
    int loader = lane + my_n * arguments.cluster_m;
    if (lane >= arguments.cluster_m) {
      const int other = lane - arguments.cluster_m;
      loader = my_m + (other + (other >= my_n)) * arguments.cluster_m;
    }
    // If registers allow it, the address of that block's barriers is computed once. A mapa per k block would lie
    // between the products of two k blocks.
    constexpr bool kMapOnce = Tile::moves_registers || Tile::m64s * Tile::registers < 128;
    uint32_t loaders_empty = 0;
    if constexpr (kMapOnce) loaders_empty = ptx::mapa(empty, lane < readers ? loader : rank);
    const auto release = [&](int stage) {
      if (cluster_size == 1) {
        if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
      } else if constexpr (kMapOnce) {
        if (lane < readers) ptx::mbarrier_arrive_remote(loaders_empty + stage * 8);
      } else {
        if (lane < readers) ptx::mbarrier_arrive_cluster(empty + stage * 8, loader);
      }
    };
    Position at;
    int buffer = 0;
    const int share = Tile::pingpong ? 0 : warpgroup;  // which rows of the tile this warpgroup multiplies
    constexpr int kFirstTurn = Tile::warpgroups + 1;   // after the barriers of store_tile
    int begin = first, stride = step;
    if constexpr (Tile::pingpong) {
      begin += warpgroup * step, stride *= 2;
      at.skip<Tile::stages>(warpgroup * arguments.k_blocks);
    }
    for (int tile = begin; tile < arguments.tiles; tile += stride) {
      const TileCoordinates where(arguments, tile);
      float d[Tile::m64s][Tile::registers];
      pin<Tile>(d);
      int previous = 0;
      if (Tile::pingpong && tile != first) ptx::bar_sync(kFirstTurn + warpgroup, 256);
      for (int block = 0; block < arguments.k_blocks; ++block) {
        ptx::mbarrier_wait(full + at.stage * 8, at.phase);
        multiply_stage<Tile>(d, stages + at.stage * Tile::stage_bytes, share, block > 0);
        ptx::wgmma_wait_group<1>();
        if (block > 0) release(previous);
        previous = at.stage;
        at.advance<Tile::stages>();
      }
      if constexpr (Tile::pingpong) {
        if (tile + step < arguments.tiles) ptx::bar_arrive(kFirstTurn + 1 - warpgroup, 256);
        at.skip<Tile::stages>(arguments.k_blocks);
      }
      ptx::wgmma_wait_group<0>();
      release(previous);
      pin<Tile>(d);
      const int m = first_row(where) + share * Tile::rows, n = first_column(where);
      store_tile<Tile, kPanelsEach, Swap>(d, arguments, &out_map, panels + warpgroup * kPanelsEach * kPanelBytes,
                                          buffer, 1 + warpgroup, m, n, where.batch);
    }
    if (threadIdx.x % 128 == 0) ptx::bulk_wait_group<0>();
  }
  // A peer's arrival or multicast must not find a block that has gone.
  if (cluster_size > 1) {
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
#endif
}

}  // namespace cuda_llm_ops::cuda::sm90
