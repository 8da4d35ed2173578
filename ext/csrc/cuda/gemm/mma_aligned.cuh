// 16-bit GEMM with mma.sync for operands whose lines begin at multiples of 16 bytes (sm_80 and later).
//
//   global a, b --cp.async 16 B--> ring of Stages tiles in shared memory --ldmatrix--> fragments --mma.sync--> float32
//
//   Roles     every warp loads, multiplies and stores. Warps form a WarpsM x WarpsN grid over the tile, WarpsK times
//             over: warp group w of WarpsK takes the w-th part of every k tile, and the epilogue adds the parts in
//             order.
//   Stages    tile t lives in slot t % Stages. While tile t is multiplied, Stages - 2 tiles are complete or on their
//             way and tile t + Stages - 1 is being issued, into the slot of tile t - 1, spread over t's steps. Fragments
//             are double-buffered: step s + 1 is read (at the last step: step 0 of the next tile) while s multiplies.
//   Barrier   one a tile, before its last step: each thread waits for its own copies of tile t + 1, then
//             __syncthreads() makes them everybody's, and also says that nobody reads tile t's slot's predecessor.
//   Epilogue  accumulators -> float32 tile in the ring's memory -> alpha, beta, c -> 16-byte stores of whole rows.
//   Edges     a copy reads only the bytes inside the operand and fills zeros behind them; nothing else is predicated.
#pragma once

#include <cstdint>

#include "../ptx/cp_async.cuh"
#include "../ptx/shared_address.cuh"
#include "mma_tile.cuh"
#include "problem.cuh"

namespace cuda_llm_ops::cuda {

template <int TileM_, int TileN_, int TileK_, int WarpsM_, int WarpsN_, int WarpsK_, int Stages_, int BlocksPerSm_>
struct MmaConfig {
  static constexpr int TileM = TileM_, TileN = TileN_, TileK = TileK_;
  static constexpr int WarpsM = WarpsM_, WarpsN = WarpsN_, WarpsK = WarpsK_;
  static constexpr int Stages = Stages_;
  static constexpr int BlocksPerSm = BlocksPerSm_;  // at least, for the register budget
  static constexpr int Threads = 32 * WarpsM * WarpsN * WarpsK;
  static constexpr int ABytes = TileM * TileK * 2;
  static constexpr int BBytes = TileN * TileK * 2;
  static constexpr int StagingBytes = WarpsK * TileM * kStagingPitch<TileN> * 4;
  static constexpr int RingBytes = Stages * (ABytes + BBytes);
  static constexpr int SharedBytes = RingBytes > StagingBytes ? RingBytes : StagingBytes;
};

// One thread's share of the copies of one operand's tiles, `Extent` along m or n and `TileK` along k.
template <typename T, int Extent, int TileK, int Threads, bool KMajor>
class TileLoader {
 public:
  static constexpr int kChunks = (KMajor ? TileK : Extent) / 8;
  static constexpr int kLinesPerPass = Threads / kChunks;
  static constexpr int kPasses = (KMajor ? Extent : TileK) / kLinesPerPass;
  static_assert(Threads % kChunks == 0 && kLinesPerPass % 8 == 0, "a thread's swizzle is the same in every pass");
  static_assert(kPasses * kLinesPerPass == (KMajor ? Extent : TileK), "passes cover the tile");

  // `origin` is the tile's first row (column) in the operand of `extent` rows (columns) and `k` along k.
  __device__ __forceinline__ TileLoader(const T* operand, int64_t leading, int origin, int extent, int k, int thread) {
    const int line = thread / kChunks;
    const int chunk = thread % kChunks;
    const int first = KMajor ? origin + line : line;         // line in the operand
    const int column = KMajor ? chunk * 8 : origin + chunk * 8;  // element in the line
    source_ = reinterpret_cast<const char*>(operand + first * leading + column);
    pass_bytes_ = kLinesPerPass * leading * static_cast<int64_t>(sizeof(T));
    tile_bytes_ = (KMajor ? TileK : TileK * leading) * static_cast<int64_t>(sizeof(T));
    lines_left_ = (KMajor ? extent : k) - first;
    bytes_left_ = ((KMajor ? k : extent) - column) * static_cast<int>(sizeof(T));
    target_ = line * kChunks * 16 + ((chunk ^ swizzle<kChunks>(line)) << 4);
  }

  // Copies of passes [begin, end) of the current tile into the slot at `tile`.
  __device__ __forceinline__ void issue(uint32_t tile, int begin, int end) const {
    const int bytes = min(max(bytes_left_, 0), 16);
#pragma unroll
    for (int pass = begin; pass < end; ++pass) {
      const bool inside = pass * kLinesPerPass < lines_left_;
      ptx::cp_async_cg_16(tile + target_ + pass * kLinesPerPass * kChunks * 16, source_ + pass * pass_bytes_,
                          inside ? bytes : 0);
    }
  }

  __device__ __forceinline__ void next_tile() {
    source_ += tile_bytes_;
    if constexpr (KMajor) {
      bytes_left_ -= TileK * static_cast<int>(sizeof(T));
    } else {
      lines_left_ -= TileK;
    }
  }

 private:
  const char* source_;
  int64_t pass_bytes_, tile_bytes_;
  int lines_left_;  // from this thread's first line to the end of the operand
  int bytes_left_;  // from this thread's chunk to the end of the line
  uint32_t target_;
};

template <typename T, typename Config, bool AKMajor, bool BKMajor>
__global__ void __launch_bounds__(Config::Threads, Config::BlocksPerSm)
    mma_aligned_kernel(const __grid_constant__ GemmProblem problem) {
  constexpr int kStages = Config::Stages;
  constexpr int kWarpM = Config::TileM / Config::WarpsM;
  constexpr int kWarpN = Config::TileN / Config::WarpsN;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;
  constexpr int kSteps = Config::TileK / 16 / Config::WarpsK;
  static_assert(kSteps % 2 == 0, "the last step of a tile reads the next one's first into fragment buffer 0");
  static_assert(kStages >= 3, "one tile is read, one is complete, one is being filled");

  extern __shared__ __align__(1024) char shared[];
  const uint32_t ring_a = ptx::shared_address(shared);
  const uint32_t ring_b = ring_a + kStages * Config::ABytes;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int warp_m = warp % Config::WarpsM;
  const int warp_n = warp / Config::WarpsM % Config::WarpsN;
  const int warp_k = warp / (Config::WarpsM * Config::WarpsN);

  const TilePosition position = tile_position(problem.tiles_m, problem.tiles_n);
  const int row0 = position.m * Config::TileM;
  const int column0 = position.n * Config::TileN;

  using LoaderA = TileLoader<T, Config::TileM, Config::TileK, Config::Threads, AKMajor>;
  using LoaderB = TileLoader<T, Config::TileN, Config::TileK, Config::Threads, BKMajor>;
  LoaderA load_a(static_cast<const T*>(problem.a) + position.batch * problem.a_batch, problem.a_leading, row0,
                 problem.m, problem.k, thread);
  LoaderB load_b(static_cast<const T*>(problem.b) + position.batch * problem.b_batch, problem.b_leading, column0,
                 problem.n, problem.k, thread);
  const int tiles = (problem.k + Config::TileK - 1) / Config::TileK;

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < tiles) {
      load_a.issue(ring_a + stage * Config::ABytes, 0, LoaderA::kPasses);
      load_b.issue(ring_b + stage * Config::BBytes, 0, LoaderB::kPasses);
      load_a.next_tile();
      load_b.next_tile();
    }
    ptx::cp_async_commit_group();
  }

  const FragmentReader<Config::TileM, Config::TileK, AKMajor, true> read_a(lane, warp_m * kWarpM);
  const FragmentReader<Config::TileN, Config::TileK, BKMajor, false> read_b(lane, warp_n * kWarpN);
  uint32_t a[2][kBlocksM][4];
  uint32_t b[2][kBlocksN][4];
  float accumulators[kBlocksM][2 * kBlocksN][4] = {};

  const auto read_fragments = [&](int buffer, uint32_t tile_a, uint32_t tile_b, int step) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) read_a.read(a[buffer][i], tile_a, warp_k * kSteps + step, i);
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) read_b.read(b[buffer][j], tile_b, warp_k * kSteps + step, j);
  };

  ptx::cp_async_wait_group<kStages - 2>();
  __syncthreads();
  read_fragments(0, ring_a, ring_b, 0);

  int slot = 0;                 // of the tile being multiplied
  int free_slot = kStages - 1;  // of the tile being filled
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const bool more = tile + kStages - 1 < tiles;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        ptx::cp_async_commit_group();
        ptx::cp_async_wait_group<kStages - 2>();
        __syncthreads();
        free_slot = slot;
        slot = slot + 1 == kStages ? 0 : slot + 1;
      }
      read_fragments((step + 1) % 2, ring_a + slot * Config::ABytes, ring_b + slot * Config::BBytes,
                     (step + 1) % kSteps);
      if (step < kSteps - 1 && more) {
        constexpr int kParts = kSteps - 1;
        load_a.issue(ring_a + free_slot * Config::ABytes, LoaderA::kPasses * step / kParts,
                     LoaderA::kPasses * (step + 1) / kParts);
        load_b.issue(ring_b + free_slot * Config::BBytes, LoaderB::kPasses * step / kParts,
                     LoaderB::kPasses * (step + 1) / kParts);
        if (step == kSteps - 2) {
          load_a.next_tile();
          load_b.next_tile();
        }
      }
      multiply_fragments<T, kBlocksM, kBlocksN>(accumulators, a[step % 2], b[step % 2]);
    }
  }

  ptx::cp_async_wait_group<0>();
  __syncthreads();
  constexpr int kPitch = kStagingPitch<Config::TileN>;
  float* const staging = reinterpret_cast<float*>(shared);
  stage_accumulators<kPitch>(staging + warp_k * Config::TileM * kPitch, accumulators, lane, warp_m * kWarpM,
                             warp_n * kWarpN);
  __syncthreads();
  store_tile<T, Config::TileM, Config::TileN, Config::WarpsK, Config::Threads>(problem, staging, position.batch, row0,
                                                                               column0);
}

}  // namespace cuda_llm_ops::cuda
