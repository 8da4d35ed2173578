// GEMM on Hopper with split-K, for products of few tiles and for weights that are read once: a cluster computes one
// tile, and its S blocks split k.
//
//   way            block s of S takes k blocks [s K / S, (s + 1) K / S), with producer and consumers as in mainloop.cuh
//                  -> write_slices(): registers -> slices in shared memory, by owner -> bulk copy of each slice to its
//                  owner -> the owner adds the S parts and stores them to out: store_chunk() (split_k_exchange.cuh)
//   shared memory  [stage 0: P | Q] ... [stage S' - 1]  [full][empty][arrived]. When all consumers have read the last
//                  stage, the slices take the place of the stages: [own: S slices][received: S - 1 slices]
//   arrived        an mbarrier that counts the bytes of the received slices
//
// Where clusters do not fit, k may also be split into parts through the workspace. Then the grid has one more
// dimension, like a batch; the float32 products of the parts lie in the workspace, and a second kernel adds them
// (parts.h).
//
// Several blocks share an SM: the loads of one hide the start and the end of another, of this grid or of the next. The
// next grid starts early (griddepcontrol.cuh). Usually it starts at once. Where the weights are read only once, it
// starts when this grid has issued its last loads. It then fetches its first k blocks into L2, so that memory has work
// while this grid ends.
#pragma once

#include "split_k_exchange.cuh"

namespace cuda_llm_ops::cuda::sm90 {

// The splits of kernels.h whose parts fit, as bits.
template <typename Tile, bool Swap, int BlocksPerSm>
__host__ __device__ constexpr int possible_splits() {
  int possible = 0;
  for (const int split : {1, 2, 3, 4, 8}) {
    const int needed = parts_bytes<Tile, Swap>(split) + barrier_bytes<Tile>();
    if (needed <= 233472 / BlocksPerSm - 1024) possible |= 1 << split;
  }
  return possible;
}

// The place of the stages and then of the parts, before the barriers.
template <typename Tile, bool Swap, int BlocksPerSm>
__host__ __device__ constexpr int ring_bytes() {
  int most = Tile::stages * Tile::stage_bytes;
  for (const int split : {1, 2, 3, 4, 8}) {
    const int parts = parts_bytes<Tile, Swap>(split);
    if ((possible_splits<Tile, Swap, BlocksPerSm>() >> split & 1) != 0 && parts > most) most = parts;
  }
  return most;
}

template <typename Tile, bool Swap, int BlocksPerSm>
__host__ __device__ constexpr int split_k_shared_bytes() {
  return ring_bytes<Tile, Swap, BlocksPerSm>() + barrier_bytes<Tile>();
}

// A scheduler has 512 registers a lane, and up to one warp more than there are warpgroups of each block.
template <typename Tile, int BlocksPerSm>
constexpr int split_max_registers() {
  const int fair = 512 / (BlocksPerSm * (Tile::warpgroups + 1)) / 8 * 8;
  return fair < 224 ? fair : 224;
}

template <typename Tile, bool Swap, int BlocksPerSm>
__global__ void __maxnreg__((split_max_registers<Tile, BlocksPerSm>()))
    split_k_gemm(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                 const __grid_constant__ CUtensorMap, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + ring_bytes<Tile, Swap, BlocksPerSm>();
  const uint32_t empty = full + Tile::stages * 8;
  const uint32_t arrived = empty + Tile::stages * 8;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int split = ptx::cluster_nctarank();
  const int rank = ptx::cluster_ctarank();
  const int owned = owned_rows(Tile::m, split);
  const int my_first = rank * owned;
  const int my_rows = min(max(Tile::m - my_first, 0), owned);
  const int lines = Swap ? Tile::n : owned;
  const int pitch = (Swap ? owned : Tile::n) + line_padding(Swap);
  const int slice_bytes = lines * pitch * 4;

  const TileCoordinates where(arguments, blockIdx.x / split);
  const int m = tile_start<Tile::m, Tile::p_mn_major>(where.m * Tile::m, arguments.rows);
  const int n = tile_start<Tile::n, Tile::q_mn_major>(where.n * Tile::n, arguments.columns);
  const int piece = (arguments.parts > 1 ? where.batch * split : 0) + rank, pieces = arguments.parts * split;
  const int first_block = arguments.k_blocks * piece / pieces, last_block = arguments.k_blocks * (piece + 1) / pieces;

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
    }
    __syncwarp();
    prefetch_operands(arguments);
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4 * Tile::warpgroups);
    }
    ptx::mbarrier_init(arrived, 1);
    ptx::fence_mbarrier_init();
    if (split > 1) ptx::mbarrier_arrive_expect_tx(arrived, (split - 1) * slice_bytes);
  }
  __syncthreads();
  if (arguments.ahead_blocks > 0 && warp < Tile::warpgroups * 4) {
    constexpr int kThreads = Tile::warpgroups * 128;
    if (arguments.ahead_q) {
      fetch_ahead<Tile::k, Tile::q_mn_major>(arguments, n, Tile::n, first_block, threadIdx.x, kThreads);
    } else {
      fetch_ahead<Tile::k, Tile::p_mn_major>(arguments, m, Tile::m, first_block, threadIdx.x, kThreads);
    }
  }
  // The producer lets the next grid start before it loads this k block. If it has no such block, the next grid starts
  // now.
  const int late_block = arguments.late_blocks < 0 ? -1 : last_block - 1 - arguments.late_blocks;
  if (late_block < first_block) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (warp == Tile::warpgroups * 4) {
    if (ptx::elect_sync()) {
      Position at;
      const int p_batch = arguments.p_batched ? where.batch : 0, q_batch = arguments.q_batched ? where.batch : 0;
      for (int block = first_block; block < last_block; ++block) {
        if (block == late_block) ptx::griddepcontrol_launch_dependents();
        const uint32_t stage = stages + at.stage * Tile::stage_bytes;
        ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(full + at.stage * 8, Tile::stage_bytes - arguments.clipped_bytes);
        load_operand<Tile::m, Tile::k, Tile::p_mn_major>(&p_map, stage, full + at.stage * 8, m, block * Tile::k,
                                                         p_batch, Share());
        load_operand<Tile::q_extent, Tile::k, Tile::q_mn_major>(&q_map, stage + Tile::p_bytes, full + at.stage * 8, n,
                                                                block * Tile::k, q_batch, Share());
        at.advance<Tile::stages>();
      }
    }
    __syncwarp();
    if (split > 1) {
#pragma unroll 1
      for (int meeting = 0; meeting < 2; ++meeting) {
        ptx::barrier_cluster_arrive_relaxed();
        ptx::barrier_cluster_wait();
      }
    }
    return;
  }

  const int warpgroup = warp / 4;
  const int lane = threadIdx.x % 32;
  float d[Tile::m64s][Tile::registers];
#pragma unroll
  for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
    for (int r = 0; r < Tile::registers; ++r) d[i][r] = 0.0f;
  }
  pin<Tile>(d);
  Position at;
  int previous = 0;
  for (int block = first_block; block < last_block; ++block) {
    ptx::mbarrier_wait(full + at.stage * 8, at.phase);
    multiply_stage<Tile>(d, stages + at.stage * Tile::stage_bytes, warpgroup, true);
    ptx::wgmma_wait_group<1>();
    if (block > first_block && lane == 0) ptx::mbarrier_arrive(empty + previous * 8);
    previous = at.stage;
    at.advance<Tile::stages>();
  }
  ptx::wgmma_wait_group<0>();
  pin<Tile>(d);

  // The stages become the place of the parts: every warpgroup of this block must have done with them before the slices
  // are written here, and every block of the cluster before they are copied there.
  if (split > 1) ptx::barrier_cluster_arrive_relaxed();
  ptx::bar_sync(1, Tile::warpgroups * 128);
  write_slices<Tile, Swap>(d, stages, slice_bytes, owned, pitch, warp, lane);
  const uint32_t received = stages + split * slice_bytes;  // parts in the order of their blocks, without this one's
  if (split > 1) {
    ptx::fence_proxy_async_shared();
    ptx::barrier_cluster_wait();
    ptx::bar_sync(1, Tile::warpgroups * 128);
    if (threadIdx.x < split && threadIdx.x != rank) {
      const int owner = threadIdx.x;
      ptx::bulk_copy_to_cluster(ptx::mapa(received + (rank - (rank > owner)) * slice_bytes, owner),
                                stages + owner * slice_bytes, slice_bytes, ptx::mapa(arrived, owner));
    }
    ptx::mbarrier_wait(arrived, 0);
    __syncwarp();
    ptx::barrier_cluster_arrive_relaxed();  // the senders may end
  } else {
    ptx::bar_sync(1, Tile::warpgroups * 128);
  }

  // The owned part of the tile, 8 elements along a row of out at a time.
  const int out_rows = Swap ? arguments.columns : arguments.rows;
  const int out_columns = Swap ? arguments.rows : arguments.columns;
  const int row_0 = Swap ? n : m + my_first, column_0 = Swap ? m + my_first : n;
  const int my_lines = min(Swap ? Tile::n : my_rows, out_rows - row_0);
  const int chunks = (Swap ? my_rows : Tile::n) / 8;
  // Walks over (line, chunk) by `kThreads` chunks a step, without a division a step; two steps' loads at once.
  constexpr int kThreads = Tile::warpgroups * 128, kAtOnce = 2;
  const int step_lines = kThreads / chunks, step_chunks = kThreads - step_lines * chunks;
  int line = threadIdx.x / chunks, chunk = threadIdx.x - line * chunks;
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
  if (split > 1) ptx::barrier_cluster_wait();
#endif
}

}  // namespace cuda_llm_ops::cuda::sm90
