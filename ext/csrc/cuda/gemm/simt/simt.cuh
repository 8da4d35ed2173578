// float32 GEMM on the CUDA cores (FFMA): full float32 products and sums, no tensor cores, any strides, any sizes.
//
//   global a, b --cp.async 4 B (16 B)--> ring of 3 tiles in shared memory, [k][m] and [k][n] --> registers --> FFMA
//
//   Roles     256 threads in a 16 x 16 grid over the tile; a thread owns outer x outer groups of 4 x 4 results, the
//             groups 64 rows or columns apart, so that a warp's 16-byte reads of a line are contiguous or broadcast.
//   Stages    while tile t is multiplied, t + 1 is on its way or complete and t + 2 is being issued into the slot of
//             t - 1. A 4-byte copy puts each element where it belongs, so transposition costs no instruction.
//   Barrier   one a tile: own copies of the tile waited for, then __syncthreads().
//   Epilogue  accumulators -> alpha, beta, c -> stores of 4 columns (16 bytes where aligned).
#pragma once

#include <cstdint>

#include "../../ptx/cp_async.cuh"
#include "../../ptx/shared_address.cuh"
#include "../problem.cuh"

namespace cuda_llm_ops::cuda {

struct SimtStrides {
  int64_t a_m, a_k, b_k, b_n;
  bool a_vector, b_vector;  // 16-byte copies along m (n) are aligned
};

template <int Outer, int BlocksPerSm>
struct SimtConfig {
  static constexpr int outer = Outer;
  static constexpr int tile = 64 * outer;
  static constexpr int tile_m = tile, tile_n = tile;
  static constexpr int tile_k = 16;
  static constexpr int threads = 256;
  static constexpr int stages = 3;
  static constexpr int blocks_per_sm = BlocksPerSm;
  static constexpr int pitch = tile + 4;  // floats: 8 k times 4 rows of transposing copies fill all banks
  static constexpr int operand_bytes = tile_k * pitch * 4;
  static constexpr int shared_bytes = stages * 2 * operand_bytes;
};

// One thread's share of the copies of one operand's tiles.
template <typename Config>
class SimtLoader {
 public:
  static constexpr int kElements = Config::tile * Config::tile_k / Config::threads;

  __device__ __forceinline__ SimtLoader(const float* operand, int64_t row_stride, int64_t k_stride, bool vector,
                                        int origin, int extent, int k, int thread)
      : k_stride_(k_stride), row_stride_(row_stride), k_left_(k), vector_(vector), along_k_(k_stride == 1) {
    if (vector_) {  // 4 rows a copy
      row_ = thread % (Config::tile / 4) * 4;
      k_at_ = thread / (Config::tile / 4);
    } else if (along_k_) {  // 8 k of 4 rows a warp
      row_ = thread / 8;
      k_at_ = thread % 8;
    } else {  // 32 rows a warp
      row_ = thread % Config::tile;
      k_at_ = thread / Config::tile;
    }
    rows_left_ = extent - origin - row_;
    k_left_ -= k_at_;
    source_ = operand + (origin + row_) * row_stride + k_at_ * k_stride;
    target_ = (k_at_ * Config::pitch + row_) * 4;
  }

  __device__ __forceinline__ void issue(uint32_t tile) {
    if (vector_) {
      constexpr int kStep = Config::threads / (Config::tile / 4);
#pragma unroll
      for (int i = 0; i < kElements / 4; ++i) {
        const uint32_t target = tile + target_ + i * kStep * Config::pitch * 4;
        const float* const source = source_ + i * kStep * k_stride_;
        const int rows = i * kStep < k_left_ ? rows_left_ : 0;
        if (rows <= 0 || rows >= 4) {
          ptx::cp_async_cg_16(target, source, rows <= 0 ? 0 : 16);
        } else {
#pragma unroll 1
          for (int row = 0; row < 4; ++row) ptx::cp_async_ca_4(target + row * 4, source + row, row < rows ? 4 : 0);
        }
      }
    } else if (along_k_) {
      constexpr int kRows = Config::threads / 8;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const int row = i / 2 * kRows;
        const int at = i % 2 * 8;
        ptx::cp_async_ca_4(tile + target_ + (at * Config::pitch + row) * 4, source_ + row * row_stride_ + at,
                           row < rows_left_ && at < k_left_ ? 4 : 0);
      }
    } else {
      constexpr int kStep = Config::threads / Config::tile;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        ptx::cp_async_ca_4(tile + target_ + i * kStep * Config::pitch * 4, source_ + i * kStep * k_stride_,
                           0 < rows_left_ && i * kStep < k_left_ ? 4 : 0);
      }
    }
    source_ += Config::tile_k * k_stride_;
    k_left_ -= Config::tile_k;
  }

 private:
  const float* source_;
  int64_t k_stride_, row_stride_;
  int rows_left_, k_left_;
  bool vector_, along_k_;
  int row_, k_at_;
  uint32_t target_;
};

template <typename Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_sm)
    simt_kernel(const __grid_constant__ GemmProblem problem, const __grid_constant__ SimtStrides strides) {
  constexpr int kOuter = Config::outer;
  constexpr int kStages = Config::stages;
  extern __shared__ __align__(1024) char shared[];
  const uint32_t ring = ptx::shared_address(shared);
  const int thread = static_cast<int>(threadIdx.x);
  // A warp covers 4 rows of threads times 8 columns: 4 broadcast addresses along m, 8 along n.
  const int thread_m = thread / 128 * 8 + thread % 32 / 8 + thread / 32 % 2 * 4;
  const int thread_n = thread / 64 % 2 * 8 + thread % 8;

  const TilePosition position = tile_position(problem.tiles_m, problem.tiles_n);
  const int row0 = position.m * Config::tile;
  const int column0 = position.n * Config::tile;
  SimtLoader<Config> load_a(static_cast<const float*>(problem.a) + position.batch * problem.a_batch, strides.a_m,
                            strides.a_k, strides.a_vector, row0, problem.m, problem.k, thread);
  SimtLoader<Config> load_b(static_cast<const float*>(problem.b) + position.batch * problem.b_batch, strides.b_n,
                            strides.b_k, strides.b_vector, column0, problem.n, problem.k, thread);
  const int tiles = (problem.k + Config::tile_k - 1) / Config::tile_k;

  const auto issue = [&](int slot) {
    load_a.issue(ring + slot * 2 * Config::operand_bytes);
    load_b.issue(ring + slot * 2 * Config::operand_bytes + Config::operand_bytes);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < tiles) issue(stage);
    ptx::cp_async_commit_group();
  }

  float sums[4 * kOuter][4 * kOuter] = {};
  int slot = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    if (tile + kStages - 1 < tiles) issue(slot == 0 ? kStages - 1 : slot - 1);
    ptx::cp_async_commit_group();
    const float* const tile_a =
        reinterpret_cast<const float*>(shared + slot * 2 * Config::operand_bytes) + thread_m * 4;
    const float* const tile_b =
        reinterpret_cast<const float*>(shared + slot * 2 * Config::operand_bytes + Config::operand_bytes) +
        thread_n * 4;
#pragma unroll
    for (int k = 0; k < Config::tile_k; ++k) {
      float a[4 * kOuter], b[4 * kOuter];
#pragma unroll
      for (int i = 0; i < kOuter; ++i) {
        const float4 four_a = *reinterpret_cast<const float4*>(tile_a + k * Config::pitch + i * 64);
        const float4 four_b = *reinterpret_cast<const float4*>(tile_b + k * Config::pitch + i * 64);
        a[4 * i] = four_a.x, a[4 * i + 1] = four_a.y, a[4 * i + 2] = four_a.z, a[4 * i + 3] = four_a.w;
        b[4 * i] = four_b.x, b[4 * i + 1] = four_b.y, b[4 * i + 2] = four_b.z, b[4 * i + 3] = four_b.w;
      }
#pragma unroll
      for (int i = 0; i < 4 * kOuter; ++i) {
#pragma unroll
        for (int j = 0; j < 4 * kOuter; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
      }
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  float* const out = static_cast<float*>(problem.out) + static_cast<int64_t>(position.batch) * problem.m * problem.n;
  const float* const c = static_cast<const float*>(problem.c) + position.batch * problem.c_batch;
#pragma unroll
  for (int i = 0; i < 4 * kOuter; ++i) {
    const int row = row0 + i / 4 * 64 + thread_m * 4 + i % 4;
    if (row >= problem.m) continue;
#pragma unroll
    for (int group = 0; group < kOuter; ++group) {
      const int column = column0 + group * 64 + thread_n * 4;
      float values[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        values[j] = problem.alpha * sums[i][4 * group + j];
        if (problem.c != nullptr && column + j < problem.n) {
          values[j] += problem.beta * c[row * problem.c_m + (column + j) * problem.c_n];
        }
      }
      float* const target = out + static_cast<int64_t>(row) * problem.n + column;
      if (problem.out_vector && column < problem.n) {
        store_vector(target, values);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (column + j < problem.n) target[j] = values[j];
        }
      }
    }
  }
}

}  // namespace cuda_llm_ops::cuda
