// 16-bit GEMM with mma.sync for operands whose lines begin at multiples of 16 bytes (sm_80 and later).
//
//   way       global a, b --cp.async 16 B--> ring of Stages tiles in shared memory --ldmatrix--> fragments
//             --mma.sync--> float32 accumulators --stage_accumulators()--> staging tile --store_tile()--> out
//   Roles     Every warp loads, multiplies and stores. Warps form a warps_m x warps_n grid over the tile, warps_k times
//             over: warp group w of warps_k takes the w-th part of every k tile, and the epilogue adds the parts in
//             order.
//   Stages    Tile t lives in slot t % stages. While tile t is multiplied, stages - 2 tiles are complete or on their
//             way, and tile t + stages - 1 is issued into the slot of tile t - 1, spread over the steps of t. Fragments
//             are double-buffered: while step s multiplies, step s + 1 is read (at the last step: step 0 of the next
//             tile).
//   Barrier   One a tile, before the multiplications of its last step. Each thread waits for its own copies of tile t +
//             1. Then __syncthreads() makes them visible to all, and guarantees that all have read the last fragments
//             of tile t, whose slot is filled next. The loop over tiles that lie inside the operands has no branch in
//             its body. With a branch, the compiler moves multiplications ahead of the barrier, and nothing is left to
//             hide it.
//   Epilogue  The staging tile takes the ring's memory; the threads then apply alpha, beta and c, and store whole rows,
//             16 bytes at a time.
//   Edges     A copy reads only the bytes inside the operand and fills zeros behind them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../ptx/cp_async.cuh"
#include "../../ptx/shared_address.cuh"
#include "../problem.cuh"
#include "tile.cuh"

namespace cuda_llm_ops::cuda {

template <int TileM, int TileN, int TileK, int WarpsM, int WarpsN, int WarpsK, int Stages, int BlocksPerSm>
struct MmaConfig {
  static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK;
  static constexpr int warps_m = WarpsM, warps_n = WarpsN, warps_k = WarpsK;
  static constexpr int stages = Stages;
  static constexpr int blocks_per_sm = BlocksPerSm;  // at least, for the register budget
  static constexpr int threads = 32 * warps_m * warps_n * warps_k;
  static constexpr int a_bytes = tile_m * tile_k * 2;
  static constexpr int b_bytes = tile_n * tile_k * 2;
  static constexpr int staging_bytes = warps_k * tile_m * kStagingPitch<tile_n> * 4;
  static constexpr int ring_bytes = stages * (a_bytes + b_bytes);
  static constexpr int shared_bytes = ring_bytes > staging_bytes ? ring_bytes : staging_bytes;
};

// One thread's share of the copies of one operand's tiles, `Extent` along m or n and `tile_k` along k. It keeps little,
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
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_sm)
    mma_aligned_kernel(const __grid_constant__ GemmProblem problem) {
  constexpr int kStages = Config::stages;
  constexpr int kWarpM = Config::tile_m / Config::warps_m;
  constexpr int kWarpN = Config::tile_n / Config::warps_n;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;
  constexpr int kSteps = Config::tile_k / 16 / Config::warps_k;
  static_assert(kSteps % 2 == 0, "the last step of a tile reads the next one's first into fragment buffer 0");
  static_assert(kStages >= 3, "one tile is read, one is complete, one is being filled");

  extern __shared__ __align__(1024) char shared[];
  const uint32_t ring_a = ptx::shared_address(shared);
  const uint32_t ring_b = ring_a + kStages * Config::a_bytes;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int warp_m = warp % Config::warps_m;
  const int warp_n = warp / Config::warps_m % Config::warps_n;
  const int warp_k = warp / (Config::warps_m * Config::warps_n);

  const TilePosition position = tile_position(problem.tiles_m, problem.tiles_n);
  const int row0 = position.m * Config::tile_m;
  const int column0 = position.n * Config::tile_n;

  using LoaderA = TileLoader<T, Config::tile_m, Config::tile_k, Config::threads, AKMajor>;
  using LoaderB = TileLoader<T, Config::tile_n, Config::tile_k, Config::threads, BKMajor>;
  LoaderA load_a(static_cast<const T*>(problem.a) + position.batch * problem.a_batch, problem.a_leading, row0);
  LoaderB load_b(static_cast<const T*>(problem.b) + position.batch * problem.b_batch, problem.b_leading, column0);
  const int tiles = (problem.k + Config::tile_k - 1) / Config::tile_k;
  const int whole_tiles =
      row0 + Config::tile_m <= problem.m && column0 + Config::tile_n <= problem.n ? problem.k / Config::tile_k : 0;

  const auto issue = [&](int slot, int tile) {
    const int k0 = tile * Config::tile_k;
    load_a.issue(ring_a + slot * Config::a_bytes, problem.a_leading, row0, problem.m, k0, problem.k, problem.a_end);
    load_b.issue(ring_b + slot * Config::b_bytes, problem.b_leading, column0, problem.n, k0, problem.k, problem.b_end);
  };
  const auto issue_whole = [&](int slot, int part, int parts) {
    load_a.issue_whole(ring_a + slot * Config::a_bytes, problem.a_leading, LoaderA::kPasses * part / parts,
                       LoaderA::kPasses * (part + 1) / parts);
    load_b.issue_whole(ring_b + slot * Config::b_bytes, problem.b_leading, LoaderB::kPasses * part / parts,
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

  const FragmentReader<Config::tile_m, Config::tile_k, AKMajor, true> read_a(lane, warp_m * kWarpM);
  const FragmentReader<Config::tile_n, Config::tile_k, BKMajor, false> read_b(lane, warp_n * kWarpN);
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
      read_fragments((step + 1) % 2, ring_a + slot * Config::a_bytes, ring_b + slot * Config::b_bytes,
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
  constexpr int kPitch = kStagingPitch<Config::tile_n>;
  float* const staging = reinterpret_cast<float*>(shared);
  stage_accumulators<kPitch>(staging + warp_k * Config::tile_m * kPitch, accumulators, lane, warp_m * kWarpM,
                             warp_n * kWarpN);
  __syncthreads();
  store_tile<T, Config::tile_m, Config::tile_n, Config::warps_k, Config::threads>(problem, staging, position.batch,
                                                                                  row0, column0);
}

}  // namespace cuda_llm_ops::cuda
