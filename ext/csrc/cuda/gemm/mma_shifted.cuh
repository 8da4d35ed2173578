// 16-bit GEMM with mma.sync for operands of any alignment (sm_80 and later): lines may begin at any element.
//
//   global a, b --cp.async 16 B--> ring of Stages raw tiles --shift--> one tile --ldmatrix--> fragments --mma.sync-->
//   float32
//
//   Roles     every warp loads, shifts, multiplies and stores; warps form a WarpsM x WarpsN grid over the tile.
//   Raw tile  a line (see mma_tile.cuh) of L elements is fetched as the L / 8 + 1 aligned granules of 16 bytes that hold
//             it, so copies stay wide and asynchronous; it then begins 0 to 7 elements into its raw line, and since a
//             step along k is a multiple of 16 bytes, always at the same one.
//   Stages    while tile t is shifted and multiplied, t + 1 is complete or on its way and t + 2 is being issued.
//   Barriers  two a tile: raw tile complete (and the multiplied tile free again); tile shifted. Two or more blocks share
//             a multiprocessor, so that one multiplies while another shifts.
//   Edges     a copy reads no byte behind the end of its line and fills zeros instead. The granule in which an operand
//             begins may hold up to 14 bytes before it: they are of the same allocation (16 aligned bytes never are of
//             two) and are not used.
#pragma once

#include <cstdint>

#include "../ptx/cp_async.cuh"
#include "../ptx/shared_address.cuh"
#include "mma_tile.cuh"
#include "problem.cuh"

namespace cuda_llm_ops::cuda {

template <int Tile_, int WarpsM_, int WarpsN_, int BlocksPerSm_>
struct ShiftedConfig {
  static constexpr int TileM = Tile_, TileN = Tile_, TileK = 32;
  static constexpr int WarpsM = WarpsM_, WarpsN = WarpsN_;
  static constexpr int Stages = 3;
  static constexpr int BlocksPerSm = BlocksPerSm_;
  static constexpr int Threads = 32 * WarpsM * WarpsN;
  static constexpr int TileBytes = Tile_ * TileK * 2;
  static constexpr int RawBytes = Tile_ * (TileK + 8) * 2;  // of the layout with more granules, K-major
  static constexpr int StagingBytes = Tile_ * kStagingPitch<Tile_> * 4;
  static constexpr int RingBytes = 2 * (TileBytes + Stages * RawBytes);
  static constexpr int SharedBytes = RingBytes > StagingBytes ? RingBytes : StagingBytes;
};

// One thread's share of the copies and shifts of one operand's tiles, `Extent` along m or n and `TileK` along k. In
// both a thread's lines are a multiple of 8 apart, so that all of them are aligned alike and swizzled alike.
template <int Extent, int TileK, int Threads, bool KMajor>
class ShiftedLoader {
 public:
  static constexpr int kLines = KMajor ? Extent : TileK;
  static constexpr int kElements = KMajor ? TileK : Extent;  // of a line
  static constexpr int kChunks = kElements / 8;
  static constexpr int kRawPitch = (kChunks + 1) * 16;  // bytes
  // Copies: all granules of a line but the last one; the last ones by a thread a line.
  static constexpr int kCopyLines = Threads / kChunks;
  static constexpr int kCopies = kLines / kCopyLines;
  // Shifts: words of two elements.
  static constexpr int kWords = kElements / 2;
  static constexpr int kShiftWords = kWords < Threads / 8 ? kWords : Threads / 8;
  static constexpr int kShiftLines = Threads / kShiftWords;
  static_assert(kCopyLines % 8 == 0 && kLines % kCopyLines == 0, "copies of a thread are aligned alike");
  static_assert(kShiftLines % 8 == 0 && kLines % kShiftLines == 0 && kWords % kShiftWords == 0, "and its shifts");
  static_assert(TileK % 8 == 0, "a step along k keeps every line's alignment");

  // `operand` is 2-byte aligned; `origin` is the tile's first row (column) of the operand's `extent`. Threads
  // first_last_copier to first_last_copier + kLines - 1 copy the last granules.
  __device__ __forceinline__ ShiftedLoader(const void* operand, int64_t leading, int origin, int extent, int k,
                                           int thread, int first_last_copier) {
    const int64_t leading_bytes = leading * 2;
    const char* const first =
        static_cast<const char*>(operand) + (KMajor ? origin * leading_bytes : static_cast<int64_t>(origin) * 2);
    const int line_bytes = (KMajor ? k : extent - origin) * 2;
    tile_bytes_ = KMajor ? TileK * 2 : TileK * leading_bytes;
    copy_bytes_ = kCopyLines * leading_bytes;
    lines_left_ = KMajor ? extent - origin : k;

    copy_line_ = thread / kChunks;
    set_source(first + copy_line_ * leading_bytes, thread % kChunks, line_bytes, &source_, &bytes_left_);
    target_ = copy_line_ * kRawPitch + thread % kChunks * 16;

    last_line_ = thread - first_last_copier;
    if (last_line_ < 0 || last_line_ >= kLines) last_line_ = kNoLine;
    set_source(first + last_line_ % kLines * leading_bytes, kChunks, line_bytes, &last_source_, &last_bytes_left_);

    const int line = thread / kShiftWords;
    const int word = thread % kShiftWords;
    const int offset = static_cast<int>((reinterpret_cast<uint64_t>(first + line * leading_bytes) & 15) >> 1);
    raw_word_ = line * kRawPitch + (word + offset / 2) * 4;
    funnel_ = offset % 2 * 16;
    tile_line_ = line * (kElements * 2) + word % 4 * 4;
    tile_chunk_ = ((word / 4) ^ swizzle<kChunks>(line)) << 4;
  }

  // Copies the current tile into the raw tile at `raw` and goes to the next tile. `operand_end` is the end of the
  // operand's last batch.
  __device__ __forceinline__ void issue(uint32_t raw, const char* operand_end) {
    const int bytes = min(max(bytes_left_, 0), 16);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const char* const source = source_ + i * copy_bytes_;
      const int inside = copy_line_ + i * kCopyLines < lines_left_ ? bytes : 0;
      if (!crosses_end(source, inside, operand_end)) {
        ptx::cp_async_cg_16(raw + target_ + i * kCopyLines * kRawPitch, source, inside);
      }
    }
    if (bytes > 0 && bytes < 16) {
#pragma unroll 1
      for (int i = 0; i < kCopies && copy_line_ + i * kCopyLines < lines_left_; ++i) {
        const char* const source = source_ + i * copy_bytes_;
        if (crosses_end(source, bytes, operand_end)) {
          copy_elements(raw + target_ + i * kCopyLines * kRawPitch, source, bytes);
        }
      }
    }
    if (last_line_ != kNoLine) {
      const int last_bytes = last_line_ < lines_left_ ? min(max(last_bytes_left_, 0), 16) : 0;
      const uint32_t target = raw + last_line_ * kRawPitch + kChunks * 16;
      if (crosses_end(last_source_, last_bytes, operand_end)) {
        copy_elements(target, last_source_, last_bytes);
      } else {
        ptx::cp_async_cg_16(target, last_source_, last_bytes);
      }
    }
    source_ += tile_bytes_;
    last_source_ += tile_bytes_;
    if constexpr (KMajor) {
      bytes_left_ -= TileK * 2;
      last_bytes_left_ -= TileK * 2;
    } else {
      lines_left_ -= TileK;
    }
  }

  // From a raw tile to the swizzled one.
  __device__ __forceinline__ void shift(const char* raw, char* tile) const {
#pragma unroll
    for (int i = 0; i < kLines / kShiftLines; ++i) {
#pragma unroll
      for (int j = 0; j < kWords / kShiftWords; ++j) {
        const uint32_t* const source = reinterpret_cast<const uint32_t*>(
            raw + raw_word_ + i * kShiftLines * kRawPitch + j * kShiftWords * 4);
        const uint32_t value = __funnelshift_r(source[0], source[1], funnel_);
        const int chunk = tile_chunk_ ^ (j * (kShiftWords / 4) << 4);
        *reinterpret_cast<uint32_t*>(tile + tile_line_ + i * kShiftLines * (kElements * 2) + chunk) = value;
      }
    }
  }

 private:
  static constexpr int kNoLine = 1 << 30;

  // The granule of a line that begins at `line`, and the bytes from its begin to the end of the line.
  __device__ __forceinline__ static void set_source(const char* line, int granule, int line_bytes, const char** source,
                                                    int* left) {
    const uint64_t start = reinterpret_cast<uint64_t>(line);
    *source = reinterpret_cast<const char*>(start & ~uint64_t{15}) + granule * 16;
    *left = line_bytes + static_cast<int>(start & 15) - granule * 16;
  }

  const char* source_;
  const char* last_source_;
  int64_t tile_bytes_, copy_bytes_;
  int lines_left_;  // from the tile's first line to the end of the operand
  int bytes_left_, last_bytes_left_;
  int copy_line_, last_line_;
  int target_, raw_word_, funnel_, tile_line_, tile_chunk_;
};

template <typename T, typename Config, bool AKMajor, bool BKMajor>
__global__ void __launch_bounds__(Config::Threads, Config::BlocksPerSm)
    mma_shifted_kernel(const __grid_constant__ GemmProblem problem) {
  constexpr int kStages = Config::Stages;
  constexpr int kWarpM = Config::TileM / Config::WarpsM;
  constexpr int kWarpN = Config::TileN / Config::WarpsN;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;

  extern __shared__ __align__(1024) char shared[];
  char* const tile_a = shared;
  char* const tile_b = shared + Config::TileBytes;
  char* const ring = shared + 2 * Config::TileBytes;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp_m = thread / 32 % Config::WarpsM;
  const int warp_n = thread / 32 / Config::WarpsM;

  const TilePosition position = tile_position(problem.tiles_m, problem.tiles_n);
  const int row0 = position.m * Config::TileM;
  const int column0 = position.n * Config::TileN;
  ShiftedLoader<Config::TileM, Config::TileK, Config::Threads, AKMajor> load_a(
      static_cast<const T*>(problem.a) + position.batch * problem.a_batch, problem.a_leading, row0, problem.m,
      problem.k, thread, 0);
  ShiftedLoader<Config::TileN, Config::TileK, Config::Threads, BKMajor> load_b(
      static_cast<const T*>(problem.b) + position.batch * problem.b_batch, problem.b_leading, column0, problem.n,
      problem.k, thread, Config::Threads / 2);
  const int tiles = (problem.k + Config::TileK - 1) / Config::TileK;

  const auto issue = [&](int slot) {
    const uint32_t raw = ptx::shared_address(ring) + slot * 2 * Config::RawBytes;
    load_a.issue(raw, problem.a_end);
    load_b.issue(raw + Config::RawBytes, problem.b_end);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < tiles) issue(stage);
    ptx::cp_async_commit_group();
  }

  const FragmentReader<Config::TileM, Config::TileK, AKMajor, true> read_a(lane, warp_m * kWarpM);
  const FragmentReader<Config::TileN, Config::TileK, BKMajor, false> read_b(lane, warp_n * kWarpN);
  float accumulators[kBlocksM][2 * kBlocksN][4] = {};

  int slot = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    if (tile + kStages - 1 < tiles) issue(slot == 0 ? kStages - 1 : slot - 1);
    ptx::cp_async_commit_group();
    const char* const raw = ring + slot * 2 * Config::RawBytes;
    load_a.shift(raw, tile_a);
    load_b.shift(raw + Config::RawBytes, tile_b);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < Config::TileK / 16; ++step) {
      uint32_t a[kBlocksM][4];
      uint32_t b[kBlocksN][4];
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) read_a.read(a[i], ptx::shared_address(tile_a), step, i);
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) read_b.read(b[j], ptx::shared_address(tile_b), step, j);
      multiply_fragments<T, kBlocksM, kBlocksN>(accumulators, a, b);
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  ptx::cp_async_wait_group<0>();
  __syncthreads();
  float* const staging = reinterpret_cast<float*>(shared);
  stage_accumulators<kStagingPitch<Config::TileN>>(staging, accumulators, lane, warp_m * kWarpM, warp_n * kWarpN);
  __syncthreads();
  store_tile<T, Config::TileM, Config::TileN, 1, Config::Threads>(problem, staging, position.batch, row0, column0);
}

}  // namespace cuda_llm_ops::cuda
