// FP8 products of few rows on Hopper: the transposed product, at the speed of memory. A block computes 64 columns of out
// (rows of b) by up to 128 rows of a; the blocks of a cluster split k between them and add their parts.
//
//   way             TMA loads of b and a into stages (producer) -> wgmma, 64 rows of b by the rows of a -> float32 sums
//                   after every 128 of k -> a part in shared memory -> the blocks of the cluster each add a slice of
//                   all parts -> scales, bias -> out
//   warps 0 .. 3    one consumer warpgroup
//   warp 4          One thread is the producer. So many stages are in flight that memory is never waited for.
//
//   shared memory   [stage 0: b, in boxes of 128 of k | a, likewise] ... [stage S - 1] [full S][empty S] [factors]
//                   With block scales the part lies where the stages were: all of them have been read by then.
//                   Else it has a place behind the barriers, and blocks that do not split k walk over tiles: stages of
//                   the next tile come in while the sums of the last one are scaled and stored.
//   factors         block scales: the product of both scales for each block of k and each row of a
//   cluster         the blocks that split k; one rank after the other adds, so that the bits repeat
//
// The next grid starts at once (griddepcontrol.cuh).
#pragma once

#include "../../gemm/sm90/mainloop.cuh"
#include "store.cuh"
#include "tiles.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

using cuda::sm90::Position;

template <typename Q_, int TileN, int Boxes, int Stages, int BlocksPerSm, bool BlockScales>
struct FewRowsTile {
  using Q = Q_;
  static constexpr int m = 64, n = TileN, boxes = Boxes, stages = Stages, blocks_per_sm = BlocksPerSm;
  static constexpr bool block_scales = BlockScales;
  static constexpr int registers = TileN / 2;
  static constexpr int threads = 160;
  static constexpr int p_box = m * kFp8Block, q_box = n * kFp8Block, stage_bytes = Boxes * (p_box + q_box);
  static constexpr bool walks = !BlockScales;
  static constexpr int part_bytes = TileN * m * 4, barriers_end = Stages * (stage_bytes + 16);
  static constexpr int part_at = walks ? barriers_end : 0;
  static constexpr int shared_bytes = barriers_end + (walks ? part_bytes : 0);  // factors come on top
  static_assert(TileN % 8 == 0 && q_box % 1024 == 0 && barriers_end % 16 == 0);
  static_assert(walks || part_bytes <= Stages * stage_bytes, "the part takes the place of the stages");
};

// Where the part has the sum of a row of a and a column, in bytes. Columns are exchanged in eights, so that the lanes
// that write rows in twos share no bank; four columns stay together.
__device__ __forceinline__ uint32_t place_in_part(int row, int column) {
  return static_cast<uint32_t>(row * 64 + (column ^ row / 2 % 4 * 8)) * 4;
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks_per_sm)
    fp8_few_rows(const __grid_constant__ CUtensorMap p_map, const __grid_constant__ CUtensorMap q_map,
                 const __grid_constant__ CUtensorMap, const __grid_constant__ KernelArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + Tile::stages * Tile::stage_bytes;
  const uint32_t empty = full + Tile::stages * 8;
  float* const factors = reinterpret_cast<float*>(shared_memory + Tile::stages * (Tile::stage_bytes + 16));
  const Fp8GemmArguments& g = arguments.g;

  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int split = arguments.cluster;
  const int rank = split == 1 ? 0 : ptx::cluster_ctarank();
  const int tiles = ((g.n + Tile::m - 1) / Tile::m) * arguments.tiles_n, clusters = gridDim.x / split;
  // Blocks that run at the same time share rows of b.
  const auto row_of = [&](int tile) { return tile % arguments.tiles_n * Tile::n; };
  const auto column_of = [&](int tile) { return tile / arguments.tiles_n * Tile::m; };

  // This block's blocks of k, in whole stages.
  const StagesOfRank mine((arguments.k_blocks + Tile::boxes - 1) / Tile::boxes, split, rank);
  const int first_block = mine.first * Tile::boxes;

  if (warp == 4) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&p_map);
      ptx::prefetch_tensormap(&q_map);
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (warp == 4) {
    if (ptx::elect_sync()) {
      Position at;
      for (int tile = blockIdx.x / split; tile < tiles; tile += clusters) {
        const int row = row_of(tile), column = column_of(tile);
        for (int s = 0; s < mine.count; ++s) {
          const uint32_t stage = stages + at.stage * Tile::stage_bytes, barrier = full + at.stage * 8;
          ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(barrier, Tile::stage_bytes);
#pragma unroll
          for (int box = 0; box < Tile::boxes; ++box) {
            const int k = (first_block + s * Tile::boxes + box) * kFp8Block;
            ptx::tma_load_3d(stage + box * Tile::p_box, &p_map, barrier, k, column, 0, ptx::evict_first);
            ptx::tma_load_3d(stage + Tile::boxes * Tile::p_box + box * Tile::q_box, &q_map, barrier, k, row, 0,
                             ptx::evict_last);
          }
          at.advance<Tile::stages>();
        }
      }
    }
    __syncwarp();
    if (split > 1) {  // one tile
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
    }
  } else {
    const uint64_t p_base = ptx::k_major_descriptor(stages);
    const uint64_t q_base = ptx::k_major_descriptor(stages + Tile::boxes * Tile::p_box);
    const uint32_t part = stages + Tile::part_at;
    Position at;
    for (int tile = blockIdx.x / split; tile < tiles; tile += clusters) {
      const int row = row_of(tile), column = column_of(tile);
      if constexpr (Tile::block_scales) {
        const float* const scales_b = g.scale_b + column / kFp8Block * g.scale_b_stride_n;
        for (int i = threadIdx.x; i < mine.count * Tile::boxes * Tile::n; i += 128) {
          const int block = first_block + i / Tile::n, at = row + i % Tile::n;
          const bool inside = block < arguments.k_blocks && at < g.m;
          factors[i] = inside ? __ldg(g.scale_a + at * g.scale_a_stride_m + block * g.scale_a_stride_k) *
                                    __ldg(scales_b + block * g.scale_b_stride_k)
                              : 0.0f;
        }
        ptx::bar_sync(1, 128);
      }
      float sums[Tile::registers];
#pragma unroll
      for (int r = 0; r < Tile::registers; ++r) sums[r] = 0.0f;
      float d[Tile::boxes][Tile::registers];
      for (int s = 0; s < mine.count; ++s) {
        ptx::mbarrier_wait(full + at.stage * 8, at.phase);
        const uint64_t p = p_base + at.stage * (Tile::stage_bytes / 16),
                       q = q_base + at.stage * (Tile::stage_bytes / 16);
#pragma unroll
        for (int box = 0; box < Tile::boxes; ++box) ptx::wgmma_fence_operand(d[box]);
        ptx::wgmma_fence();
#pragma unroll
        for (int box = 0; box < Tile::boxes; ++box) {
#pragma unroll
          for (int step = 0; step < kFp8Block / 32; ++step) {
            ptx::Wgmma<Tile::n>::template ss_fp8<ptx::E4m3, typename Tile::Q>(
                d[box], p + box * (Tile::p_box / 16) + step * 2, q + box * (Tile::q_box / 16) + step * 2, step > 0);
          }
        }
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (int box = 0; box < Tile::boxes; ++box) ptx::wgmma_fence_operand(d[box]);
        if (lane == 0) ptx::mbarrier_arrive(empty + at.stage * 8);
#pragma unroll
        for (int box = 0; box < Tile::boxes; ++box) {
          const float* const of_block = factors + (s * Tile::boxes + box) * Tile::n + lane % 4 * 2;
#pragma unroll
          for (int j = 0; j < Tile::n / 8; ++j) {
            float2 factor = make_float2(1.0f, 1.0f);
            if constexpr (Tile::block_scales) factor = *reinterpret_cast<const float2*>(of_block + j * 8);
            sums[4 * j] += d[box][4 * j] * factor.x;
            sums[4 * j + 1] += d[box][4 * j + 1] * factor.y;
            sums[4 * j + 2] += d[box][4 * j + 2] * factor.x;
            sums[4 * j + 3] += d[box][4 * j + 3] * factor.y;
          }
        }
        at.advance<Tile::stages>();
      }
      // All warps have read the stages, and the part of the last tile: a line of 64 columns of out for each row of a.
      ptx::bar_sync(1, 128);
#pragma unroll
      for (int j = 0; j < Tile::n / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int line = j * 8 + lane % 4 * 2 + i % 2, of_line = warp * 16 + lane / 4 + i / 2 * 8;
          ptx::st_shared(part + place_in_part(line, of_line), sums[4 * j + i]);
        }
      }
      // A lane takes four columns of out, sixteen lanes a row; the warps of all ranks take two rows each in turn. What
      // the columns share is loaded while the block waits for its peers.
      const int first_column = column + lane % 16 * 4;
      float scales[4], biases[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool inside = first_column + i < g.n;
        scales[i] = inside && !Tile::block_scales ? scale_of_column(g, g.scale_b, first_column + i) : 1.0f;
        biases[i] = inside ? bias_of(g, first_column + i) : 0.0f;
      }
      if (split > 1) {
        ptx::barrier_cluster_arrive();
        ptx::barrier_cluster_wait();
      } else {
        ptx::bar_sync(1, 128);
      }
      constexpr int together = Tile::n < 32 ? 1 : 4;  // rows whose sums are on their way at once
      const int lines = min(Tile::n, g.m - row), step = split * 8;
      for (int first = rank * 8 + warp * 2 + lane / 16; first < lines; first += together * step) {
        float4 whole[together];
        float of_row[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
          whole[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          const bool inside = first + i * step < lines;
          of_row[i] = inside && !Tile::block_scales ? scale_of_row(g, row + first + i * step) : 1.0f;
        }
        for (int peer = 0; peer < split; ++peer) {
          float4 theirs[together];
#pragma unroll
          for (int i = 0; i < together; ++i) {
            const int line = min(first + i * step, lines - 1);
            theirs[i] = ptx::ld_cluster_vector(ptx::mapa(part + place_in_part(line, lane % 16 * 4), peer));
          }
#pragma unroll
          for (int i = 0; i < together; ++i) {
            whole[i].x += theirs[i].x, whole[i].y += theirs[i].y, whole[i].z += theirs[i].z, whole[i].w += theirs[i].w;
          }
        }
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const int line = first + i * step;
          if (line >= lines) break;
          store_numbers(
              g, row + line, first_column,
              {whole[i].x * (of_row[i] * scales[0]) + biases[0], whole[i].y * (of_row[i] * scales[1]) + biases[1],
               whole[i].z * (of_row[i] * scales[2]) + biases[2], whole[i].w * (of_row[i] * scales[3]) + biases[3]});
        }
      }
    }
  }
  // A peer may still read this block's part.
  if (split > 1) {
    __syncwarp();
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
#endif
}

template <typename Tile>
constexpr Kernel few_rows_kernel(const char* name) {
  return {name,
          reinterpret_cast<const void*>(&fp8_few_rows<Tile>),
          ptx::is_e5m2<typename Tile::Q> ? Fp8Type::e5m2 : Fp8Type::e4m3,
          true,
          Tile::block_scales,
          Tile::n,
          Tile::m,
          Tile::boxes * kFp8Block,
          Tile::stages,
          Tile::threads,
          Tile::shared_bytes,
          Tile::blocks_per_sm};
}

#define CUDA_LLM_OPS_FEW_ROWS(Q, N, BOXES, STAGES, BLOCKS)                                                    \
  few_rows_kernel<FewRowsTile<Q, N, BOXES, STAGES, BLOCKS, false>>("few rows " #N " k" #BOXES " s" #STAGES),  \
      few_rows_kernel<FewRowsTile<Q, N, BOXES, STAGES, BLOCKS, true>>("few rows " #N " k" #BOXES " s" #STAGES \
                                                                      " block scales")

// clang-format off: one tile a line
template <typename Q>
KernelList few_rows_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_FEW_ROWS(Q, 8, 2, 5, 2),
      CUDA_LLM_OPS_FEW_ROWS(Q, 8, 4, 3, 2),
      CUDA_LLM_OPS_FEW_ROWS(Q, 16, 2, 5, 2),
      CUDA_LLM_OPS_FEW_ROWS(Q, 32, 2, 4, 2),
      CUDA_LLM_OPS_FEW_ROWS(Q, 64, 1, 6, 2),
      CUDA_LLM_OPS_FEW_ROWS(Q, 64, 2, 6, 1),
      CUDA_LLM_OPS_FEW_ROWS(Q, 128, 1, 8, 1),
  };
  return kernels;
}
// clang-format on
#undef CUDA_LLM_OPS_FEW_ROWS

}  // namespace cuda_llm_ops::cuda::fp8::sm90
