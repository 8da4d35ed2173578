// 16-bit GEMM with mma.sync for large products of whole tiles (sm_80 and later): as mma_aligned.cuh, by blocks that stay
// and take one tile of out after the other.
//
//   k tiles   ... t - 2 | t - 1 || 0 | 1 | 2 ...          || where one tile of out ends and the next one begins
//   copies                     ^ Stages - 1 ahead of ^ products: they cross the border while the last tiles multiply
//
//   Roles, stages, barrier   as in mma_aligned.cuh. The copies never stop: after a block's last tile of out they fetch the
//             beginning of that tile once more, which nobody reads, so that the loop needs no branch.
//   Epilogue  from registers, since the ring is being filled: the four threads of a quad hold two neighbouring elements of
//             each of 8 columns, turn four such pieces among themselves, and each writes 16 bytes.
#pragma once

#include "mma_aligned.cuh"

namespace cuda_llm_ops::cuda {

// Thread c of a quad holds words[q] = word c of row q; afterwards words[q] = word q of row c.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&words)[4], int lane) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (q & distance) continue;
      const uint32_t sent = upper ? words[q] : words[q + distance];
      const uint32_t received = __shfl_xor_sync(0xffffffff, sent, distance);
      words[q] = upper ? received : words[q];
      words[q + distance] = upper ? words[q + distance] : received;
    }
  }
}

// Writes a warp's accumulators, whose first row and column in out are given, with alpha and without c.
template <typename T, int Blocks16, int Blocks8>
__device__ __forceinline__ void store_accumulators(const GemmProblem& problem, float (&accumulators)[Blocks16][Blocks8][4],
                                                   int batch, int row0, int column0, int lane) {
  static_assert(Blocks8 % 4 == 0, "a quad turns four pieces of 8 columns");
  const int64_t first =
      (static_cast<int64_t>(batch) * problem.m + row0 + lane / 4) * problem.n + column0;
#pragma unroll
  for (int i = 0; i < Blocks16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t line = first + static_cast<int64_t>(i * 16 + half * 8) * problem.n;
#pragma unroll
      for (int j = 0; j < Blocks8; j += 4) {
        if (problem.out_float) {
          float* const out = static_cast<float*>(problem.out) + line + j * 8 + lane % 4 * 2;
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            *reinterpret_cast<float2*>(out + q * 8) =
                make_float2(problem.alpha * accumulators[i][j + q][half * 2],
                            problem.alpha * accumulators[i][j + q][half * 2 + 1]);
          }
        } else {
          uint32_t words[4];
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            words[q] = pack_pair<T>(problem.alpha * accumulators[i][j + q][half * 2],
                                    problem.alpha * accumulators[i][j + q][half * 2 + 1]);
          }
          transpose_in_quad(words, lane);
          T* const out = static_cast<T*>(problem.out) + line + (j + lane % 4) * 8;
          *reinterpret_cast<uint4*>(out) = make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }
}

// m, n and k are multiples of the tile's, k of at least Stages tiles; c is nullptr; out is written in whole vectors.
template <typename T, typename Config, bool AKMajor, bool BKMajor>
__global__ void __launch_bounds__(Config::Threads, Config::BlocksPerSm)
    mma_stream_kernel(const __grid_constant__ GemmProblem problem) {
  constexpr int kStages = Config::Stages;
  constexpr int kWarpM = Config::TileM / Config::WarpsM;
  constexpr int kWarpN = Config::TileN / Config::WarpsN;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;
  constexpr int kSteps = Config::TileK / 16;
  static_assert(Config::WarpsK == 1 && kSteps % 2 == 0 && kStages >= 3, "as mma_aligned_kernel, no parts along k");

  extern __shared__ __align__(1024) char shared[];
  const uint32_t ring_a = ptx::shared_address(shared);
  const uint32_t ring_b = ring_a + kStages * Config::ABytes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_m = warp % Config::WarpsM;
  const int warp_n = warp / Config::WarpsM;

  const int k_tiles = problem.k / Config::TileK;
  using LoaderA = TileLoader<T, Config::TileM, Config::TileK, Config::Threads, AKMajor>;
  using LoaderB = TileLoader<T, Config::TileN, Config::TileK, Config::Threads, BKMajor>;
  const auto loader_a = [&](const TilePosition& at) {
    return LoaderA(static_cast<const T*>(problem.a) + at.batch * problem.a_batch, problem.a_leading,
                   at.m * Config::TileM);
  };
  const auto loader_b = [&](const TilePosition& at) {
    return LoaderB(static_cast<const T*>(problem.b) + at.batch * problem.b_batch, problem.b_leading,
                   at.n * Config::TileN);
  };
  int work = static_cast<int>(blockIdx.x);
  TilePosition position = tile_position(problem.tiles_m, problem.tiles_n, work);
  LoaderA load_a = loader_a(position);
  LoaderB load_b = loader_b(position);
  const auto issue = [&](int slot, int part, int parts) {
    load_a.issue_whole(ring_a + slot * Config::ABytes, problem.a_leading, LoaderA::kPasses * part / parts,
                       LoaderA::kPasses * (part + 1) / parts);
    load_b.issue_whole(ring_b + slot * Config::BBytes, problem.b_leading, LoaderB::kPasses * part / parts,
                       LoaderB::kPasses * (part + 1) / parts);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    issue(stage, 0, 1);
    ptx::cp_async_commit_group();
  }

  const FragmentReader<Config::TileM, Config::TileK, AKMajor, true> read_a(lane, warp_m * kWarpM);
  const FragmentReader<Config::TileN, Config::TileK, BKMajor, false> read_b(lane, warp_n * kWarpN);
  uint32_t a[2][kBlocksM][4];
  uint32_t b[2][kBlocksN][4];
  const auto read_fragments = [&](int buffer, int slot, int step) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) read_a.read(a[buffer][i], ring_a + slot * Config::ABytes, step, i);
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) read_b.read(b[buffer][j], ring_b + slot * Config::BBytes, step, j);
  };

  int slot = 0;                 // of the tile being multiplied
  int free_slot = kStages - 1;  // of the tile being filled
  ptx::cp_async_wait_group<kStages - 2>();
  __syncthreads();
  read_fragments(0, 0, 0);

#pragma unroll 1
  while (true) {
    float accumulators[kBlocksM][2 * kBlocksN][4] = {};
    const int next = work + static_cast<int>(gridDim.x);
    const bool last = next >= problem.tiles;
    const TilePosition mine = position;
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      if (part == 1) {
        if (!last) position = tile_position(problem.tiles_m, problem.tiles_n, next);
        load_a = loader_a(position);
        load_b = loader_b(position);
      }
#pragma unroll 1
      for (int left = part == 0 ? k_tiles - (kStages - 1) : kStages - 1; left > 0; --left) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int filled = free_slot;
          if (step == kSteps - 1) {
            ptx::cp_async_commit_group();
            ptx::cp_async_wait_group<kStages - 2>();
            __syncthreads();
            free_slot = slot;
            slot = slot + 1 == kStages ? 0 : slot + 1;
          }
          read_fragments((step + 1) % 2, slot, (step + 1) % kSteps);
          if (step < kSteps - 1) issue(filled, step, kSteps - 1);
          multiply_fragments<T, kBlocksM, kBlocksN>(accumulators, a[step % 2], b[step % 2]);
        }
      }
    }
    store_accumulators<T, kBlocksM, 2 * kBlocksN>(problem, accumulators, mine.batch,
                                                  mine.m * Config::TileM + warp_m * kWarpM,
                                                  mine.n * Config::TileN + warp_n * kWarpN, lane);
    if (last) break;
    work = next;
  }
  ptx::cp_async_wait_group<0>();
}

}  // namespace cuda_llm_ops::cuda
