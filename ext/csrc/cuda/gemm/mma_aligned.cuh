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
//   Barrier   one a tile, before its last step's multiplications: each thread waits for its own copies of tile t + 1,
//             then __syncthreads() makes them everybody's and says that everybody has read the last fragments of tile t,
//             whose slot is filled next. The loop over tiles that lie inside the operands has no branch in its body:
//             with one, the compiler moves multiplications ahead of the barrier and leaves it nothing to hide behind.
//   Epilogue  accumulators -> float32 tile in the ring's memory -> alpha, beta, c -> 16-byte stores of whole rows.
//   Edges     a copy reads only the bytes inside the operand and fills zeros behind them.
#pragma once

#include <cstdint>
#include <type_traits>

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

// One thread's share of the copies of one operand's tiles, `Extent` along m or n and `TileK` along k. It keeps little,
// because the accumulators leave few registers: what only the edges need is computed again there.
template <typename T, int Extent, int TileK, int Threads, bool KMajor>
class TileLoader {
 public:
  static constexpr int kChunks = (KMajor ? TileK : Extent) / 8;
  static constexpr int kLines = KMajor ? Extent : TileK;
  static constexpr int kLinesPerPass = Threads / kChunks;
  static constexpr int kPasses = kLines / kLinesPerPass;
  static_assert(Threads % kChunks == 0 && kLinesPerPass % 8 == 0, "a thread's swizzle is the same in every pass");
  static_assert(kPasses * kLinesPerPass == kLines, "passes cover the tile");

  // `origin` is the tile's first row (column) in the operand.
  __device__ __forceinline__ TileLoader(const T* operand, int64_t leading, int origin) {
    const int first = KMajor ? origin + line() : line();
    const int column = KMajor ? chunk() * 8 : origin + chunk() * 8;
    source_ = reinterpret_cast<const char*>(operand + first * leading + column);
    target_ = line() * kChunks * 16 + ((chunk() ^ swizzle<kChunks>(line())) << 4);
  }

  // Copies passes [begin, end) of a tile that lies inside the operand into the slot at `tile`; the last pass goes to
  // the next tile.
  __device__ __forceinline__ void issue_whole(uint32_t tile, int64_t leading, int begin, int end) {
#pragma unroll
    for (int pass = begin; pass < end; ++pass) {
      ptx::cp_async_cg_16(tile + target_ + pass * kPassTarget, source_);
      source_ += pass < kPasses - 1 ? pass_bytes(leading) : tile_bytes(leading) - (kPasses - 1) * pass_bytes(leading);
    }
  }

  // Copies all of any tile, the one that begins at `k0`, of an operand of `extent` rows (columns) and `k` along k, and
  // nothing behind `operand_end`; goes to the next tile.
  __device__ __forceinline__ void issue(uint32_t tile, int64_t leading, int origin, int extent, int k0, int k,
                                        const char* operand_end) {
    const int lines = (KMajor ? extent - origin : k - k0) - line();
    const int elements = (KMajor ? k - k0 : extent - origin) - chunk() * 8;
    const int bytes = min(max(elements, 0), 8) * static_cast<int>(sizeof(T));
    const char* source = source_;
    uint32_t target = tile + target_;
#pragma unroll 1
    for (int at = 0; at < kLines; at += kLinesPerPass) {
      const int inside = at < lines ? bytes : 0;
      if (crosses_end(source, inside, operand_end)) {
        copy_elements(target, source, inside);
      } else {
        ptx::cp_async_cg_16(target, source, inside);
      }
      source += pass_bytes(leading);
      target += kPassTarget;
    }
    source_ += tile_bytes(leading);
  }

 private:
  static constexpr int kPassTarget = kLinesPerPass * kChunks * 16;  // bytes

  __device__ __forceinline__ static int line() { return static_cast<int>(threadIdx.x) / kChunks; }
  __device__ __forceinline__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ __forceinline__ static int64_t pass_bytes(int64_t leading) {
    return kLinesPerPass * leading * static_cast<int64_t>(sizeof(T));
  }
  __device__ __forceinline__ static int64_t tile_bytes(int64_t leading) {
    return (KMajor ? TileK : TileK * leading) * static_cast<int64_t>(sizeof(T));
  }

  const char* source_;
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
  LoaderA load_a(static_cast<const T*>(problem.a) + position.batch * problem.a_batch, problem.a_leading, row0);
  LoaderB load_b(static_cast<const T*>(problem.b) + position.batch * problem.b_batch, problem.b_leading, column0);
  const int tiles = (problem.k + Config::TileK - 1) / Config::TileK;
  const int whole_tiles = row0 + Config::TileM <= problem.m && column0 + Config::TileN <= problem.n
                              ? problem.k / Config::TileK
                              : 0;

  const auto issue = [&](int slot, int tile) {
    const int k0 = tile * Config::TileK;
    load_a.issue(ring_a + slot * Config::ABytes, problem.a_leading, row0, problem.m, k0, problem.k, problem.a_end);
    load_b.issue(ring_b + slot * Config::BBytes, problem.b_leading, column0, problem.n, k0, problem.k, problem.b_end);
  };
  const auto issue_whole = [&](int slot, int part, int parts) {
    load_a.issue_whole(ring_a + slot * Config::ABytes, problem.a_leading, LoaderA::kPasses * part / parts,
                       LoaderA::kPasses * (part + 1) / parts);
    load_b.issue_whole(ring_b + slot * Config::BBytes, problem.b_leading, LoaderB::kPasses * part / parts,
                       LoaderB::kPasses * (part + 1) / parts);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < whole_tiles) {
      issue_whole(stage, 0, 1);
    } else if (stage < tiles) {
      issue(stage, stage);
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

  int slot = 0;                 // of the tile being multiplied
  int free_slot = kStages - 1;  // of the tile being filled
  int tile = 0;
  // `Whole`: the tile to fetch lies inside the operands. Otherwise it may cross their edges, or not exist.
  const auto multiply_tile = [&](auto whole) {
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
      if constexpr (!decltype(whole)::value) {  // while the next fragments are not there yet, registers are
        if (step == 0 && tile + kStages - 1 < tiles) issue(filled, tile + kStages - 1);
      }
      read_fragments((step + 1) % 2, ring_a + slot * Config::ABytes, ring_b + slot * Config::BBytes,
                     (step + 1) % kSteps);
      if constexpr (decltype(whole)::value) {
        if (step < kSteps - 1) issue_whole(filled, step, kSteps - 1);
      }
      multiply_fragments<T, kBlocksM, kBlocksN>(accumulators, a[step % 2], b[step % 2]);
    }
  };

  ptx::cp_async_wait_group<kStages - 2>();
  __syncthreads();
  read_fragments(0, ring_a, ring_b, 0);
#pragma unroll 1
  for (; tile + kStages - 1 < whole_tiles; ++tile) multiply_tile(std::true_type{});
#pragma unroll 1
  for (; tile < tiles; ++tile) multiply_tile(std::false_type{});

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
