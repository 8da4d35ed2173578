// GEMM on Hopper with cluster multicast and split-K, for products of few tiles and a long k.
//
//   cluster        cluster_m x cluster_n tiles by S parts of k; rank = m + cluster_m (n + cluster_n s)
//   way            block (m, n, s) takes k blocks [s K / S, (s + 1) K / S) of tile (m, n), with producer and consumers
//                  as in mainloop.cuh. The blocks of one s share their operands as in persistent.cuh: a row of tiles
//                  shares P, a column Q, and each block loads a part for all of them -> write_slices(): registers ->
//                  slices in shared memory -> bulk copy of each slice to its owner among the S blocks of the tile ->
//                  the owner adds the parts and stores them to out: store_chunk() (split_k_exchange.cuh)
//
//   shared memory  [stage 0: P | Q] ... [stage S' - 1]  [full][empty][arrived]. Then, in the place of the stages,
//                  [own: S slices][received: S - 1 slices]. When a block's consumers have read its last stage, all
//                  loads into its stages have arrived, those of its peers too. Slices are copied when that is so in all
//                  blocks.
//   barriers       full[s]: 1 arrival and the bytes, from this producer and from those that share with it.
//                  empty[s]: 4 warps x W x the blocks that read what this producer loads.
//                  The cluster's barrier is passed three times: (a) the mbarriers are initialised, before the first
//                  shared load; (b) the stages have been read, before slices are copied; (c) the slices have arrived
//                  and nobody arrives here any more, before a block may end.
//
// k may be split further through the workspace, as in split_k.cuh.
#pragma once

#include "split_k.cuh"

namespace cuda_llm_ops::cuda::sm90 {

// The place of the stages, in which the parts of a split must fit.
template <typename Tile>
__host__ __device__ constexpr int shared_ring_bytes() {
  return Tile::stages * Tile::stage_bytes;
}

template <typename Tile>
__host__ __device__ constexpr int multicast_shared_bytes() {
  return shared_ring_bytes<Tile>() + barrier_bytes<Tile>();
}

template <typename Tile, bool Swap>
__host__ __device__ constexpr int multicast_splits() {
  int possible = 0;
  for (int split = 1; split <= 8; ++split) {
    if (parts_bytes<Tile, Swap>(split) <= shared_ring_bytes<Tile>()) possible |= 1 << split;
  }
  return possible;
}

template <typename Tile, bool Swap>
__global__ void __maxnreg__((split_max_registers<Tile, 1>()))
    multicast_gemm(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static_assert(!Tile::pingpong && !Tile::moves_registers);
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + shared_ring_bytes<Tile>();
  const uint32_t empty = full + Tile::stages * 8;
  const uint32_t arrived = empty + Tile::stages * 8;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int cluster = ptx::cluster_nctarank(), cluster_rank = ptx::cluster_ctarank();
  const int sharing = arguments.cluster_m * arguments.cluster_n;
  const int split = cluster / sharing, rank = cluster_rank / sharing;
  const int first_rank = rank * sharing;  // of those that share with this block
  const int tile_rank = cluster_rank - first_rank;
  const int my_n = tile_rank / arguments.cluster_m, my_m = tile_rank - my_n * arguments.cluster_m;
  const int owned = owned_rows(Tile::m, split);
  const int my_first = rank * owned;
  const int my_rows = min(max(Tile::m - my_first, 0), owned);
  const int lines = Swap ? Tile::n : owned;
  const int pitch = (Swap ? owned : Tile::n) + line_padding(Swap);
  const int slice_bytes = lines * pitch * 4;

  const TileCoordinates where(arguments, blockIdx.x / cluster);
  const int m = tile_start<Tile::m, Tile::p_mn_major>((where.m * arguments.cluster_m + my_m) * Tile::m, arguments.rows);
  const int n =
      tile_start<Tile::n, Tile::q_mn_major>((where.n * arguments.cluster_n + my_n) * Tile::n, arguments.columns);
  const int piece = (arguments.parts > 1 ? where.batch * split : 0) + rank, pieces = arguments.parts * split;
  const int first_block = arguments.k_blocks * piece / pieces, last_block = arguments.k_blocks * (piece + 1) / pieces;

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4 * Tile::warpgroups * (arguments.cluster_m + arguments.cluster_n - 1));
    }
    ptx::mbarrier_init(arrived, 1);
    ptx::fence_mbarrier_init();
    if (split > 1) ptx::mbarrier_arrive_expect_tx(arrived, (split - 1) * slice_bytes);
  }
  __syncthreads();
  ptx::barrier_cluster_arrive_relaxed();
  if (arguments.ahead_blocks > 0 && warp < Tile::warpgroups * 4) {
    constexpr int kThreads = Tile::warpgroups * 128;
    if (arguments.ahead_q) {
      const int part = Tile::n / arguments.cluster_m;
      fetch_ahead<Tile::k, Tile::q_mn_major>(arguments, n + my_m * part, part, first_block, threadIdx.x, kThreads);
    } else {
      const int part = Tile::m / arguments.cluster_n;
      fetch_ahead<Tile::k, Tile::p_mn_major>(arguments, m + my_n * part, part, first_block, threadIdx.x, kThreads);
    }
  }
  ptx::barrier_cluster_wait();
  // The producer lets the next grid start before it loads this k block. If it has no such block, the next grid starts
  // now.
  const int late_block = arguments.late_blocks < 0 ? -1 : last_block - 1 - arguments.late_blocks;
  if (late_block < first_block) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      Share p_share, q_share;
      if (arguments.cluster_n > 1) {
        p_share.first = (Tile::p_mn_major ? Tile::k : Tile::m) / arguments.cluster_n * my_n;
        for (int i = 0; i < arguments.cluster_n; ++i)
          p_share.mask |= 1 << (first_rank + my_m + i * arguments.cluster_m);
      }
      if (arguments.cluster_m > 1) {
        q_share.first = (Tile::q_mn_major ? Tile::k : Tile::n) / arguments.cluster_m * my_m;
        for (int i = 0; i < arguments.cluster_m; ++i)
          q_share.mask |= 1 << (first_rank + i + my_n * arguments.cluster_m);
      }
      Position at;
      const int p_batch = arguments.p_batched ? where.batch : 0, q_batch = arguments.q_batched ? where.batch : 0;
      for (int block = first_block; block < last_block; ++block) {
        if (block == late_block) ptx::griddepcontrol_launch_dependents();
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
    __syncwarp();
#pragma unroll 1
    for (int meeting = 0; meeting < 2; ++meeting) {
      ptx::barrier_cluster_arrive_relaxed();
      ptx::barrier_cluster_wait();
    }
    return;
  }

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
  const uint32_t loaders_empty = ptx::mapa(empty, lane < readers ? first_rank + loader : cluster_rank);
  float d[Tile::m64s][Tile::registers];
  pin<Tile>(d);
  Position at;
  int previous = 0;
  for (int block = first_block; block < last_block; ++block) {
    ptx::mbarrier_wait(full + at.stage * 8, at.phase);
    multiply_stage<Tile>(d, stages + at.stage * Tile::stage_bytes, warpgroup, block > first_block);
    ptx::wgmma_wait_group<1>();
    if (block > first_block && lane < readers) ptx::mbarrier_arrive_remote(loaders_empty + previous * 8);
    previous = at.stage;
    at.advance<Tile::stages>();
  }
  ptx::wgmma_wait_group<0>();
  pin<Tile>(d);

  // The stages become the place of the parts: every warpgroup of this block must have done with them before the slices
  // are written here, and every block of the cluster before they are copied there.
  ptx::barrier_cluster_arrive_relaxed();
  ptx::bar_sync(1, Tile::warpgroups * 128);
  write_slices<Tile, Swap>(d, stages, slice_bytes, owned, pitch, warp, lane);
  const uint32_t received = stages + split * slice_bytes;  // parts in the order of their blocks, without this one's
  if (split > 1) ptx::fence_proxy_async_shared();
  ptx::barrier_cluster_wait();
  ptx::bar_sync(1, Tile::warpgroups * 128);
  if (split > 1) {
    if (threadIdx.x < split && threadIdx.x != rank) {
      const int owner = threadIdx.x;
      const int to = owner * sharing + tile_rank;
      ptx::bulk_copy_to_cluster(ptx::mapa(received + (rank - (rank > owner)) * slice_bytes, to),
                                stages + owner * slice_bytes, slice_bytes, ptx::mapa(arrived, to));
    }
    ptx::mbarrier_wait(arrived, 0);
    __syncwarp();
  }
  ptx::barrier_cluster_arrive_relaxed();  // the senders may end

  // The owned part of the tile, 8 elements along a row of out at a time.
  const int out_rows = Swap ? arguments.columns : arguments.rows;
  const int out_columns = Swap ? arguments.rows : arguments.columns;
  const int row_0 = Swap ? n : m + my_first, column_0 = Swap ? m + my_first : n;
  const int my_lines = min(Swap ? Tile::n : my_rows, out_rows - row_0);
  const int chunks = (Swap ? my_rows : Tile::n) / 8;
  // Walks over (line, chunk) by `kThreads` chunks a step, without a division a step; two steps' loads at once.
  constexpr int kThreads = Tile::warpgroups * 128, kAtOnce = 2;
  const int step_lines = chunks == 0 ? 0 : kThreads / chunks, step_chunks = kThreads - step_lines * chunks;
  int line = chunks == 0 ? my_lines : threadIdx.x / chunks, chunk = chunks == 0 ? 0 : threadIdx.x - line * chunks;
  while (line < my_lines) {
    float value[kAtOnce][8];
    int rows[kAtOnce], columns[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      rows[u] = line < my_lines ? row_0 + line : -1;
      columns[u] = column_0 + chunk * 8;
      const int safe_line = min(line, my_lines - 1);
#pragma unroll
      for (int e = 0; e < 8; ++e) value[u][e] = 0.0f;
      for (int s = 0; s < split; ++s) {
        const int slice = s == rank ? rank : split + s - (s > rank);
        const float4* const from =
            reinterpret_cast<const float4*>(shared_memory + slice * slice_bytes + (safe_line * pitch + chunk * 8) * 4);
        const float4 low = from[0], high = from[1];
        value[u][0] += low.x, value[u][1] += low.y, value[u][2] += low.z, value[u][3] += low.w;
        value[u][4] += high.x, value[u][5] += high.y, value[u][6] += high.z, value[u][7] += high.w;
      }
      chunk += step_chunks;
      line += step_lines;
      if (chunk >= chunks) chunk -= chunks, ++line;
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (rows[u] >= 0)
        store_chunk<typename Tile::T>(arguments, where.batch, rows[u], columns[u], out_rows, out_columns, value[u]);
    }
  }
  ptx::barrier_cluster_wait();
#endif
}

}  // namespace cuda_llm_ops::cuda::sm90
