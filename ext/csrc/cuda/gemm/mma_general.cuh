// 16-bit GEMM with mma.sync for operands of any alignment and strides (sm_80 and later): what mma_aligned.cuh's 16-byte
// copies cannot fetch.
//
//   global a, b --2-byte (4-byte) loads--> registers --> two tiles in shared memory --ldmatrix--> mma.sync --> float32
//
//   Roles     every warp loads, multiplies and stores; warps form a WarpsM x WarpsN grid over the tile.
//   Stages    two slots. Tile t + 1 is on its way in registers while tile t is multiplied, then stored to the other
//             slot. Both operands lie K-major in shared memory, whatever their strides: a word is two elements that
//             follow each other along k, and lanes are laid along the dimension that is contiguous in global memory.
//   Barrier   one a tile, between the stores of tile t + 1 and the reads from it.
//   Edges     rows beyond the operand repeat its last row (their products are never stored); elements beyond k are
//             zeros and not read.
#pragma once

#include <cstdint>

#include "../ptx/shared_address.cuh"
#include "mma_tile.cuh"
#include "problem.cuh"

namespace cuda_llm_ops::cuda {

// Strides beside those of GemmProblem, whose *_leading this kernel does not use.
struct GeneralStrides {
  int64_t a_m, a_k, b_k, b_n;
  bool a_pairs, b_pairs;  // words are contiguous along k and 4-byte aligned
};

template <int Tile_, int WarpsM_, int WarpsN_, int BlocksPerSm_>
struct GeneralConfig {
  static constexpr int Tile = Tile_;
  static constexpr int TileK = 32;
  static constexpr int WarpsM = WarpsM_, WarpsN = WarpsN_;
  static constexpr int BlocksPerSm = BlocksPerSm_;
  static constexpr int Threads = 32 * WarpsM * WarpsN;
  static constexpr int TileBytes = Tile * TileK * 2;
  static constexpr int StagingBytes = Tile * kStagingPitch<Tile> * 4;
  static constexpr int SharedBytes = 4 * TileBytes > StagingBytes ? 4 * TileBytes : StagingBytes;
};

// One thread's words of one operand's tiles.
template <int Tile, int TileK, int Threads>
class WordLoader {
 public:
  static constexpr int kWordsPerLine = TileK / 2;
  static constexpr int kWords = Tile * kWordsPerLine / Threads;
  static_assert(Threads % 32 == 0 && TileK == 32 && kWords % 2 == 0 && Threads / 4 * 2 == Tile);

  __device__ __forceinline__ WordLoader(const void* operand, int64_t row_stride, int64_t k_stride, bool pairs,
                                        int origin, int extent, int k, int thread)
      : operand_(static_cast<const uint16_t*>(operand)), k_stride_(static_cast<int>(k_stride)), k_(k), pairs_(pairs) {
    const int lane = thread % 32;
    // Lanes along k: 16 words of 2 lines. Lanes along rows: 8 lines of 4 words, which fill 32 different banks.
    const bool along_k = k_stride == 1;
    line_ = along_k ? thread / kWordsPerLine : thread / 32 * 8 + lane % 8;
    word_ = along_k ? lane % kWordsPerLine : lane / 8;
    odd_lines_ = along_k ? Threads / kWordsPerLine : Tile / 2;
    pair_lines_ = along_k ? 2 * Threads / kWordsPerLine : 0;
    pair_words_ = along_k ? 0 : 4;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int row = min(origin + line(i), extent - 1);
      offsets_[i] = static_cast<int>(row * row_stride + word(i) * 2 * k_stride);
    }
  }

  __device__ __forceinline__ void load(int k0) {
    const int base = k0 * k_stride_;
    if (pairs_ && k0 + TileK <= k_) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words_[i] = *reinterpret_cast<const uint32_t*>(operand_ + (base + offsets_[i]));
      return;
    }
    if (k0 + TileK <= k_) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        low_[i] = operand_[base + offsets_[i]];
        words_[i] = operand_[base + offsets_[i] + k_stride_];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int at = k0 + word(i) * 2;
        low_[i] = at < k_ ? operand_[base + offsets_[i]] : uint16_t{0};
        words_[i] = at + 1 < k_ ? operand_[base + offsets_[i] + k_stride_] : uint16_t{0};
      }
    }
  }

  __device__ __forceinline__ void store(char* tile, int k0) const {
    const bool whole = pairs_ && k0 + TileK <= k_;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int chunk = (word(i) / 4) ^ swizzle<TileK / 8>(line(i));
      const uint32_t value = whole ? words_[i] : (words_[i] << 16 | low_[i]);
      *reinterpret_cast<uint32_t*>(tile + line(i) * (TileK * 2) + chunk * 16 + word(i) % 4 * 4) = value;
    }
  }

 private:
  __device__ __forceinline__ int line(int i) const { return line_ + i % 2 * odd_lines_ + i / 2 * pair_lines_; }
  __device__ __forceinline__ int word(int i) const { return word_ + i / 2 * pair_words_; }

  const uint16_t* operand_;
  int k_stride_, k_;
  bool pairs_;
  int line_, word_, odd_lines_, pair_lines_, pair_words_;
  int offsets_[kWords];  // elements; every offset of an operand fits in 31 bits
  uint32_t words_[kWords];
  uint16_t low_[kWords];
};

template <typename T, typename Config>
__global__ void __launch_bounds__(Config::Threads, Config::BlocksPerSm)
    mma_general_kernel(const __grid_constant__ GemmProblem problem, const __grid_constant__ GeneralStrides strides) {
  constexpr int kTile = Config::Tile;
  constexpr int kTileK = Config::TileK;
  constexpr int kWarpM = kTile / Config::WarpsM;
  constexpr int kWarpN = kTile / Config::WarpsN;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;

  extern __shared__ __align__(1024) char shared[];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp_m = thread / 32 % Config::WarpsM;
  const int warp_n = thread / 32 / Config::WarpsM;

  const TilePosition position = tile_position(problem.tiles_m, problem.tiles_n);
  const int row0 = position.m * kTile;
  const int column0 = position.n * kTile;

  using Loader = WordLoader<kTile, kTileK, Config::Threads>;
  Loader load_a(static_cast<const T*>(problem.a) + position.batch * problem.a_batch, strides.a_m, strides.a_k,
                strides.a_pairs, row0, problem.m, problem.k, thread);
  Loader load_b(static_cast<const T*>(problem.b) + position.batch * problem.b_batch, strides.b_n, strides.b_k,
                strides.b_pairs, column0, problem.n, problem.k, thread);
  const FragmentReader<kTile, kTileK, true, true> read_a(lane, warp_m * kWarpM);
  const FragmentReader<kTile, kTileK, true, false> read_b(lane, warp_n * kWarpN);
  float accumulators[kBlocksM][2 * kBlocksN][4] = {};

  load_a.load(0);
  load_b.load(0);
  load_a.store(shared, 0);
  load_b.store(shared + Config::TileBytes, 0);
  __syncthreads();

  int slot = 0;
#pragma unroll 1
  for (int k0 = 0; k0 < problem.k; k0 += kTileK) {
    const bool more = k0 + kTileK < problem.k;
    if (more) {
      load_a.load(k0 + kTileK);
      load_b.load(k0 + kTileK);
    }
    const uint32_t tile_a = ptx::shared_address(shared) + slot * 2 * Config::TileBytes;
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
      uint32_t a[kBlocksM][4];
      uint32_t b[kBlocksN][4];
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) read_a.read(a[i], tile_a, step, i);
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) read_b.read(b[j], tile_a + Config::TileBytes, step, j);
      multiply_fragments<T, kBlocksM, kBlocksN>(accumulators, a, b);
    }
    slot ^= 1;
    if (more) {
      load_a.store(shared + slot * 2 * Config::TileBytes, k0 + kTileK);
      load_b.store(shared + slot * 2 * Config::TileBytes + Config::TileBytes, k0 + kTileK);
    }
    __syncthreads();
  }

  float* const staging = reinterpret_cast<float*>(shared);
  stage_accumulators<kStagingPitch<kTile>>(staging, accumulators, lane, warp_m * kWarpM, warp_n * kWarpN);
  __syncthreads();
  store_tile<T, kTile, kTile, 1, Config::Threads>(problem, staging, position.batch, row0, column0);
}

}  // namespace cuda_llm_ops::cuda
