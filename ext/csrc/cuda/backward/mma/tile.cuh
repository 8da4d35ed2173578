// Tiles in shared memory for mma.sync: rows with a pitch of an odd number of 16-byte chunks, so that the eight rows of an
// 8x8 matrix begin in different banks; copies of them; products of one warp over them.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/cp_async_ignore.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"

namespace cuda_llm_ops::cuda::backward {

// Bytes of a row of `columns` 16-bit elements.
__host__ __device__ constexpr int pitch_of(int columns) { return (columns / 8 | 1) * 16; }

// Columns that are read: what lies right of a row is zeros, as many as make whole chunks.
__device__ __forceinline__ int padded(int columns) { return (columns + 7) & ~7; }

// Copies `Rows` rows to `to`; those from `rows` on, and chunks from `columns` on, become zeros. Every row begins on a
// multiple of 16 bytes, and `columns` is a multiple of 8. The copies belong to the thread's current group of cp.async.
template <int Rows, int Columns, int Threads>
__device__ __forceinline__ void copy_tile(uint32_t to, const char* from, int64_t stride_bytes, int rows, int columns,
                                          int thread) {
  constexpr int chunks = Columns / 8, rows_at_once = Threads / chunks, pitch = pitch_of(Columns);
  const int row = thread / chunks, chunk = thread % chunks;  // of the thread, the same chunk in every round
  if (Threads % chunks != 0 && row >= rows_at_once) return;
  if (chunk * 8 >= columns) rows = 0;
  to += row * pitch + chunk * 16;
  from += row * stride_bytes + chunk * 16;
#pragma unroll
  for (int round = 0; round < Rows; round += rows_at_once) {
    if (Rows % rows_at_once != 0 && row + round >= Rows) break;
    ptx::cp_async_cg_16_unless(row + round >= rows, to + round * pitch, from);
    from += rows_at_once * stride_bytes;
  }
}

// Copies `Rows` floats; those from `rows` on become zeros. A thread block has at least as many threads.
template <int Rows>
__device__ __forceinline__ void copy_floats(uint32_t to, const float* from, int rows, int thread) {
  if (thread < Rows) ptx::cp_async_ca_4(to + thread * 4, thread < rows ? from + thread : from, thread < rows ? 4 : 0);
}

// Where a lane's row of the matrices lies: of a left operand (16 rows, 2 chunks), which serves a right one whose rows are
// the summed dimension too (transposed); and of a right operand whose rows are the product's columns.
template <int Pitch>
__device__ __forceinline__ uint32_t left_lane(int lane) {
  return (lane % 16) * Pitch + lane / 16 * 16;
}
template <int Pitch>
__device__ __forceinline__ uint32_t right_lane(int lane) {
  return (lane / 16 * 8 + lane % 8) * Pitch + (lane / 8 % 2) * 16;
}

struct Nothing {
  __device__ __forceinline__ void operator()(int) const {}
};

// products[i][n] = left (16 * Tiles rows) times right^T (8 * Columns rows), over Depth columns of both. `left` and
// `right` are the lane's addresses. meanwhile(n), for n from 0 to Columns - 1, is arithmetic that may run under it.
template <typename T, int Depth, int Pitch, int Tiles, int Columns, typename Meanwhile = Nothing>
__device__ __forceinline__ void multiply(float (&products)[Tiles][Columns][4], uint32_t left, uint32_t right,
                                         const Meanwhile& meanwhile = {}) {
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
#pragma unroll
    for (int n = 0; n < Columns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) products[i][n][e] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < Depth / 16; ++step) {
    uint32_t a[Tiles][4];
#pragma unroll
    for (int i = 0; i < Tiles; ++i) ptx::ldmatrix_x4(a[i], left + i * 16 * Pitch + step * 32);
#pragma unroll
    for (int n = 0; n < Columns; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, right + n * 8 * Pitch + step * 32);
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        ptx::mma_sync_m16n8k16<T>(products[i][n], a[i], b[0], b[1]);
        ptx::mma_sync_m16n8k16<T>(products[i][n + 1], a[i], b[2], b[3]);
      }
    }
    constexpr int steps = Depth / 16;
#pragma unroll
    for (int n = Columns * step / steps; n < Columns * (step + 1) / steps; ++n) meanwhile(n);
  }
}

// sums += left (16 * Tiles rows, 16 columns) times 16 rows of right. `right` is the lane's address.
template <typename T, int Tiles, int Columns>
__device__ __forceinline__ void accumulate(float (&sums)[Tiles][Columns][4], const uint32_t (&left)[Tiles][4],
                                           uint32_t right) {
#pragma unroll
  for (int n = 0; n < Columns; n += 2) {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(b, right + n * 16);
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      ptx::mma_sync_m16n8k16<T>(sums[i][n], left[i], b[0], b[1]);
      ptx::mma_sync_m16n8k16<T>(sums[i][n + 1], left[i], b[2], b[3]);
    }
  }
}

// Columns 16 * step .. + 15 of products, rounded, as a left operand.
template <typename T, int Columns>
__device__ __forceinline__ void pack(uint32_t (&left)[4], const float (&products)[Columns][4], int step) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float* const pair = &products[2 * step + e / 2][e % 2 * 2];
    left[e] = pack_pair<T>(pair[0], pair[1]);
  }
}

// Sums of 16 * Tiles rows times 8 * Columns columns from (row, column) of `to` on, which has `rows` rows and `columns`
// columns.
template <typename T, int Tiles, int Columns>
__device__ __forceinline__ void store(T* to, int64_t stride, const float (&sums)[Tiles][Columns][4], float factor,
                                      int row, int rows, int column, int columns, int lane) {
  column += lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int its_row = row + i * 16 + half * 8 + lane / 4;
      if (its_row >= rows) continue;
      T* const at = to + its_row * stride;
#pragma unroll
      for (int n = 0; n < Columns; ++n) {
        const int first = column + n * 8;
        const float low = sums[i][n][half * 2] * factor, high = sums[i][n][half * 2 + 1] * factor;
        if (columns % 2 == 0) {
          if (first < columns) *reinterpret_cast<uint32_t*>(at + first) = pack_pair<T>(low, high);
        } else {
          if (first < columns) at[first] = from_float<T>(low);
          if (first + 1 < columns) at[first + 1] = from_float<T>(high);
        }
      }
    }
  }
}

}  // namespace cuda_llm_ops::cuda::backward
