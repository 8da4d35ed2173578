// 16-bit GEMM with mma.sync for operands of any alignment (sm_80 and later): lines may begin at any element.
//
//   way       global a, b --16-byte loads--> registers --shift: place()--> tiles in shared memory, two of each
//             --ldmatrix--> fragments --mma.sync--> short sums --add--> float32 sums --stage_accumulators()--> staging
//             tile --store_realigned()--> out
//   Roles     Every warp loads, shifts, multiplies and stores. Warps form a warps_m x warps_n grid over the tile.
//   Lines     A line of L elements (see tile.cuh) is loaded as the L / 8 + 1 aligned granules of 16 bytes that hold it.
//             A thread has one granule of several lines that are aligned alike. It gets the following granule from the
//             next lane and shifts the two together. The last granules of a warp's lines (`tails`) go to shared memory
//             with cp.async, one for each lane.
//   Stages    Tile t + 1 is on its way to registers while tile t is multiplied. Several blocks share a multiprocessor.
//   Barriers  One a tile, after tile t has been shifted into place. Its place was last read for tile t - 2, before the
//             barrier of tile t - 1.
//   Sums      Tensor cores truncate a sum after every 16 terms, and these errors add up. So their sums are 32 terms
//             long, and are added to the float32 sums with rounding to nearest.
//   Split-K   The blocks of a cluster (sm_90) share k. Each then stores a share of the tile: it reads that share from
//             all staging tiles, in the order of the blocks, so that the result does not depend on timing.
//   Edges     No byte behind the end of an operand is read. The granule in which an operand begins may hold up to 14
//             bytes in front of it. They belong to the same allocation, because 16 aligned bytes never lie in two, and
//             are not used.
#pragma once

#include <cstdint>

#include "../../ptx/cluster.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/special_registers.cuh"
#include "../lines.cuh"
#include "../problem.cuh"
#include "tile.cuh"

namespace cuda_llm_ops::cuda {

constexpr int kMostRealignedSplit = 16;  // blocks of a cluster; a kernel needs permission for more than 8

template <int TileM, int TileN, int TileK, int WarpsM, int WarpsN, int BlocksPerSm>
struct RealignedConfig {
  static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK;
  static constexpr int warps_m = WarpsM, warps_n = WarpsN;
  static constexpr int blocks_per_sm = BlocksPerSm;
  static constexpr int threads = 32 * warps_m * warps_n;
  static constexpr int a_bytes = tile_m * tile_k * 2, b_bytes = tile_n * tile_k * 2;
  static constexpr int a_tails = (tile_m > tile_k ? tile_m : tile_k) * 16,
                       b_tails = (tile_n > tile_k ? tile_n : tile_k) * 16;
  static constexpr int staging_pitch = kStagingPitch<tile_n>;
  static constexpr int staging_bytes = tile_m * staging_pitch * 4;
  static constexpr int tiles_bytes = 2 * (a_bytes + b_bytes) + a_tails + b_tails;
  static constexpr int shared_bytes = tiles_bytes > staging_bytes ? tiles_bytes : staging_bytes;
};

// One thread's share of the loads and shifts of one operand's tiles, `Extent` along m or n and `tile_k` along k. A
// warp's lines are a multiple of 8 apart, so that all of them are aligned alike, in all tiles, and swizzled alike.
template <int Extent, int TileK, int Threads, bool KMajor>
class RealigningLoader {
 public:
  static constexpr int kLines = KMajor ? Extent : TileK;
  static constexpr int kElements = KMajor ? TileK : Extent;  // of a line
  static constexpr int kChunks = kElements / 8;
  static constexpr int kWarps = Threads / 32;
  static constexpr int kGroup = 32 / kChunks;    // lines of a warp at one time
  static constexpr int kStep = kWarps * kGroup;  // lines of all warps at one time
  static constexpr int kLoads = kLines / kStep;
  static constexpr int kTails = kLoads * kGroup;  // lines of a warp
  static_assert(kChunks <= 32 && kLoads * kStep == kLines && kTails <= 32, "a lane a tail");
  static_assert(kWarps % 8 == 0 && TileK % 8 == 0, "lines of a warp are aligned alike, in all tiles");

  // `operand` is 2-byte aligned; `origin` is the tile's first row (column) of the operand's `extent`, `k_begin` (a
  // multiple of TileK) its first k.
  __device__ __forceinline__ RealigningLoader(const void* operand, int64_t leading, int origin, int extent, int k_begin,
                                              int k) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int line = warp + kWarps * (lane / kChunks), chunk = lane % kChunks;
    const int64_t outer = KMajor ? origin : k_begin, inner = KMajor ? k_begin : origin;
    const char* const first = static_cast<const char*>(operand) + (outer * leading + inner) * 2;
    const int line_bytes = (KMajor ? k - k_begin : extent - origin) * 2;
    const int lines = KMajor ? extent - origin : k - k_begin;

    source_ = first + line * leading * 2 + chunk * 16;
    left_ = line_bytes - chunk * 16;
    lines_left_ = lines - line;
  }

  // Begins to load the current tile, and goes to the next one. The operand ends at `end`; `whole`: all of its elements
  // along the tile's lines are there. All lanes have done with the tails of the tile before.
  __device__ __forceinline__ void load(uint32_t tails, int64_t leading, const char* end, bool whole) {
    const char* from = source_ - misaligned(source_);
    if (whole) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        held_[i] = make_uint4(0, 0, 0, 0);
        if (i * kStep < lines_left_) held_[i] = __ldg(reinterpret_cast<const uint4*>(from));
        from += leading * (kStep * 2);
      }
    } else {
      const int left = left_ + misaligned(source_);  // from the granule to the end of the line
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        held_[i] = make_uint4(0, 0, 0, 0);
        if (left > 0 && i * kStep < lines_left_) {
          held_[i] = from + 16 <= end ? __ldg(reinterpret_cast<const uint4*>(from)) : load_until(from, end);
          if constexpr (KMajor) held_[i] = first_bytes(held_[i], left);  // behind k there are zeros
        }
        from += leading * (kStep * 2);
      }
    }
    load_tail(tails, leading, end);
    if constexpr (KMajor) {
      source_ += TileK * 2;
      left_ -= TileK * 2;
    } else {
      source_ += leading * (TileK * 2);
      lines_left_ -= TileK;
    }
  }

  // From registers to the swizzled tile, when the warp's tails are there.
  __device__ __forceinline__ void place(uint32_t tails, uint32_t tile) const {
    const uint32_t shift = misaligned(source_);
    switch (shift / 4) {  // the same for all of the warp
      case 0: place_realigned<0>(tails, tile, shift); break;
      case 1: place_realigned<1>(tails, tile, shift); break;
      case 2: place_realigned<2>(tails, tile, shift); break;
      default: place_realigned<3>(tails, tile, shift); break;
    }
  }

 private:
  // Bytes behind a multiple of 16.
  __device__ __forceinline__ static int misaligned(const char* address) {
    return static_cast<int>(reinterpret_cast<uint64_t>(address) & 15);
  }

  // A lane copies what one of the warp's lines has behind its chunks. An aligned line needs nothing of that.
  __device__ __forceinline__ void load_tail(uint32_t tails, int64_t leading, const char* end) const {
    const int thread = ptx::fresh_tid_x();  // what follows from it need not stay in registers
    const int lane = thread % 32;
    const int lines = kWarps * (lane - lane / kChunks),
              bytes = (kChunks - lane % kChunks) * 16;  // from source_ to there
    const char* granule = source_ + lines * leading * 2 + bytes;
    const int shift = misaligned(granule);
    if (lane >= kTails || shift == 0) return;
    granule -= shift;
    int wanted = lines_left_ > lines ? 16 : 0;  // behind k there are zeros
    if constexpr (KMajor) wanted = min(wanted, max(left_ - bytes + shift, 0));
    const uint32_t to = tails + (thread / 32 * kTails + lane) * 16;
    if (wanted == 0 || granule + 16 <= end) {
      ptx::cp_async_cg_16(to, granule, wanted);
    } else {
      copy_elements(to, granule, max(min(static_cast<int>(end - granule), wanted), 0));
    }
  }

  template <int Words>
  __device__ __forceinline__ void place_realigned(uint32_t tails, uint32_t tile, uint32_t shift) const {
    const int thread = ptx::fresh_tid_x();
    const int warp = thread / 32, lane = thread % 32;
    const uint32_t tail = tails + (warp * kTails + lane / kChunks) * 16;
    const int line = warp + kWarps * (lane / kChunks), chunk = lane % kChunks;
    const uint32_t to = tile + line * (kElements * 2) + ((chunk ^ swizzle<kChunks>(line)) << 4);
    const uint32_t bits = shift % 4 * 8;
    const bool last = chunk == kChunks - 1;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint32_t words[8] = {held_[i].x, held_[i].y, held_[i].z, held_[i].w};
      const uint4 behind = *static_cast<const uint4*>(__cvta_shared_to_generic(tail + i * kGroup * 16));
      const uint32_t behind_words[4] = {behind.x, behind.y, behind.z, behind.w};
#pragma unroll
      for (int word = 0; word <= Words; ++word) {
        words[4 + word] = __shfl_down_sync(0xffffffff, words[word], 1);
        if (last) words[4 + word] = behind_words[word];
      }
      *static_cast<uint4*>(__cvta_shared_to_generic(to + i * kStep * (kElements * 2))) =
          make_uint4(__funnelshift_r(words[Words], words[Words + 1], bits),
                     __funnelshift_r(words[Words + 1], words[Words + 2], bits),
                     __funnelshift_r(words[Words + 2], words[Words + 3], bits),
                     __funnelshift_r(words[Words + 3], words[Words + 4], bits));
    }
  }

  const char* source_;  // where the chunk begins, somewhere in the granule that is loaded
  int left_;            // bytes from source_ to the end of the line
  int lines_left_;      // from the line to the end of the operand
  uint4 held_[kLoads];  // the tile on its way
};

// Stores this block's share of the tile: the sum of the staging tiles of all blocks of the cluster.
template <typename Out, typename Config>
__device__ __forceinline__ void store_realigned(const GemmProblem& problem, uint32_t staging, int rank, int batch,
                                                int row0, int column0) {
  constexpr int kItems = Config::tile_m * Config::tile_n;
  const int split = problem.split;
  const bool along_n = problem.out_n == 1;
  Out* const out = static_cast<Out*>(problem.out) + static_cast<int64_t>(batch) * problem.m * problem.n;
  const Out* const c = static_cast<const Out*>(problem.c) + batch * problem.c_batch;
  const int share = kItems / split;
#pragma unroll 2
  for (int item = rank * share + static_cast<int>(threadIdx.x); item < (rank + 1) * share; item += Config::threads) {
    // A warp writes along the rows of out: 32 elements of one row. For a transposed product it writes 8 elements of
    // each of 4 rows, so that its reads of the staging tile meet no bank twice.
    const int i = along_n ? item / Config::tile_n : item / 32 % (Config::tile_m / 8) * 8 + item % 8;
    const int j = along_n ? item % Config::tile_n : item / (Config::tile_m * 4) * 4 + item / 8 % 4;
    if (row0 + i >= problem.m || column0 + j >= problem.n) continue;
    const uint32_t at = staging + (i * Config::staging_pitch + j) * 4;
    float sum = 0.0f;
#if __CUDA_ARCH__ >= 900
    if (split > 1) {
      float parts[kMostRealignedSplit];
#pragma unroll
      for (int part = 0; part < kMostRealignedSplit; ++part) {
        parts[part] = part < split ? ptx::ld_cluster(ptx::mapa(at, part)) : 0.0f;
      }
#pragma unroll
      for (int part = 0; part < kMostRealignedSplit; ++part) sum += parts[part];
    } else
#endif
    {
      sum = *static_cast<const float*>(__cvta_shared_to_generic(at));
    }
    float value = problem.alpha * sum;
    if (problem.c != nullptr) {
      value += problem.beta * to_float(c[(row0 + i) * problem.c_m + (column0 + j) * problem.c_n]);
    }
    out[(row0 + i) * problem.out_m + (column0 + j) * problem.out_n] = from_float<Out>(value);
  }
}

template <typename T, typename Config, bool AKMajor, bool BKMajor>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_sm)
    mma_realigned_kernel(const __grid_constant__ GemmProblem problem) {
  constexpr int kWarpM = Config::tile_m / Config::warps_m;
  constexpr int kWarpN = Config::tile_n / Config::warps_n;
  constexpr int kBlocksM = kWarpM / 16;
  constexpr int kBlocksN = kWarpN / 16;
  constexpr int kSteps = 2;  // of 16 along k: the length of the tensor cores' sums
  constexpr int kUnroll = kBlocksM * kBlocksN == 1 ? 4 : 1;

  extern __shared__ __align__(1024) char shared[];
  constexpr int kTileBytes = Config::a_bytes + Config::b_bytes;
  const uint32_t tails_a = ptx::shared_address(shared) + 2 * kTileBytes;
  const uint32_t tails_b = tails_a + Config::a_tails;

  const int split = problem.split;
  // Computed again after the loop: keeping them would cost registers in it.
  const auto rank_of_block = [&] { return ptx::opaque(static_cast<int>(blockIdx.x)) % split; };
  const auto tile_of_block = [&] {
    return tile_position(problem.tiles_m, problem.tiles_n, ptx::opaque(static_cast<int>(blockIdx.x)) / split);
  };
  TilePosition position = tile_of_block();
  int rank = rank_of_block();
  const bool whole_m = problem.m - position.m * Config::tile_m >= Config::tile_m;
  const bool whole_n = problem.n - position.n * Config::tile_n >= Config::tile_n;
  const int64_t all_tiles = (problem.k + Config::tile_k - 1) / Config::tile_k;
  const int first = static_cast<int>(all_tiles * rank / split);
  const int tiles = static_cast<int>(all_tiles * (rank + 1) / split) - first;
  RealigningLoader<Config::tile_m, Config::tile_k, Config::threads, AKMajor> a(
      static_cast<const T*>(problem.a) + position.batch * problem.a_batch, problem.a_leading,
      position.m * Config::tile_m, problem.m, first * Config::tile_k, problem.k);
  RealigningLoader<Config::tile_n, Config::tile_k, Config::threads, BKMajor> b(
      static_cast<const T*>(problem.b) + position.batch * problem.b_batch, problem.b_leading,
      position.n * Config::tile_n, problem.n, first * Config::tile_k, problem.k);
  int thread = static_cast<int>(threadIdx.x);
  const FragmentReader<Config::tile_m, Config::tile_k, AKMajor, true> read_a(thread % 32,
                                                                             thread / 32 % Config::warps_m * kWarpM);
  const FragmentReader<Config::tile_n, Config::tile_k, BKMajor, false> read_b(thread % 32,
                                                                              thread / 32 / Config::warps_m * kWarpN);

  const auto load = [&](int tile) {
    const bool whole_k = problem.k - (first + tile) * Config::tile_k >= Config::tile_k;
    b.load(tails_b, problem.b_leading, problem.b_end, BKMajor ? whole_k : whole_n);
    a.load(tails_a, problem.a_leading, problem.a_end, AKMajor ? whole_k : whole_m);
    ptx::cp_async_commit_group();
  };
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
  float sums[kBlocksM][2 * kBlocksN][4] = {};
  if (tiles > 0) load(0);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t tile_b = ptx::shared_address(shared) + tile % 2 * kTileBytes;
    const uint32_t tile_a = tile_b + Config::b_bytes;
    ptx::cp_async_wait_group<0>();
    __syncwarp();
    b.place(tails_b, tile_b);
    a.place(tails_a, tile_a);
    __syncwarp();
    if (tile + 1 < tiles) load(tile + 1);
    __syncthreads();
#pragma unroll kUnroll
    for (int step = 0; step < Config::tile_k / 16; step += kSteps) {
      uint32_t fragments_a[kSteps][kBlocksM][4];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) read_a.read(fragments_a[s][i], tile_a, step + s, i);
      }
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        float accumulators[kBlocksM][2][4] = {};
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          uint32_t fragments_b[1][4];
          read_b.read(fragments_b[0], tile_b, step + s, j);
          multiply_fragments<T, kBlocksM, 1>(accumulators, fragments_a[s], fragments_b);
        }
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
          for (int e = 0; e < 8; ++e) sums[i][2 * j + e / 4][e % 4] += accumulators[i][e / 4][e % 4];
        }
      }
    }
  }

  __syncthreads();
  thread = ptx::fresh_tid_x();
  stage_accumulators<Config::staging_pitch>(reinterpret_cast<float*>(shared), sums, thread % 32,
                                            thread / 32 % Config::warps_m * kWarpM,
                                            thread / 32 / Config::warps_m * kWarpN);
#if __CUDA_ARCH__ >= 900
  if (split > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else
#endif
  {
    __syncthreads();
  }
  position = tile_of_block();
  rank = rank_of_block();
  const int row0 = position.m * Config::tile_m, column0 = position.n * Config::tile_n;
  if (problem.out_float) {
    store_realigned<float, Config>(problem, ptx::shared_address(shared), rank, position.batch, row0, column0);
  } else {
    store_realigned<T, Config>(problem, ptx::shared_address(shared), rank, position.batch, row0, column0);
  }
#if __CUDA_ARCH__ >= 900
  if (split > 1) {  // the others may still read this block's staging tile
    ptx::barrier_cluster_arrive_relaxed();
    ptx::barrier_cluster_wait();
  }
#endif
}

}  // namespace cuda_llm_ops::cuda
