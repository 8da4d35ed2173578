// Shared by the portable GEMM kernels: their parameters, the tile of a block, and the store of a tile.
#pragma once

#include <cstdint>

#include "../numeric.cuh"

namespace cuda_llm_ops::cuda {

// out = alpha * a b + beta * c, see GemmArguments. Strides in elements; the stride of an operand along the dimension
// in which it is contiguous is implied by the kernel.
struct GemmProblem {
  const void* a;
  const void* b;
  const void* c;
  void* out;
  const char* a_end;  // behind the last byte of all batches
  const char* b_end;
  int m, n, k;
  int tiles_m, tiles_n;
  int64_t a_batch, a_leading;
  int64_t b_batch, b_leading;
  int64_t c_batch, c_m, c_n;
  float alpha, beta;
  int64_t out_m, out_n;  // of the kernel that realigns lines, which also computes transposed products
  int split;             // blocks of a cluster that share k, of that kernel
  bool out_float;        // else the type of a and b
  bool out_vector;       // 16-byte stores to out (and loads from c, where there is one) are aligned
};

struct TilePosition {
  int batch, m, n;  // in tiles
};

// Blocks are numbered along one grid dimension (the others end at 65535). Within a batch, bands of `kBand` tile rows
// are walked column by column, so that the blocks that run at one time share rows of a and columns of b in L2.
__device__ __forceinline__ TilePosition tile_position(int tiles_m, int tiles_n, int linear) {
  constexpr int kBand = 8;
  const int tiles = tiles_m * tiles_n;
  TilePosition position;
  position.batch = linear / tiles;
  const int rest = linear - position.batch * tiles;
  const int band = rest / (kBand * tiles_n);
  const int in_band = rest - band * (kBand * tiles_n);
  const int rows = min(kBand, tiles_m - band * kBand);
  position.n = in_band / rows;
  position.m = band * kBand + (in_band - position.n * rows);
  return position;
}

__device__ __forceinline__ TilePosition tile_position(int tiles_m, int tiles_n) {
  return tile_position(tiles_m, tiles_n, static_cast<int>(blockIdx.x));
}

// Floats of one row of the staging tile: 8 more than a multiple of 32, so that the float2 writes of accumulator
// fragments (4 rows of 4 lanes a phase) meet no bank twice.
template <int TileN>
constexpr int kStagingPitch = (TileN + 31) / 32 * 32 + 8;

template <typename Out>
__device__ __forceinline__ void store_vector(Out* out, const float* values);
template <>
__device__ __forceinline__ void store_vector<float>(float* out, const float* values) {
  *reinterpret_cast<float4*>(out) = make_float4(values[0], values[1], values[2], values[3]);
}
template <>
__device__ __forceinline__ void store_vector<__half>(__half* out, const float* values) {
  *reinterpret_cast<uint4*>(out) =
      make_uint4(pack_pair<__half>(values[0], values[1]), pack_pair<__half>(values[2], values[3]),
                 pack_pair<__half>(values[4], values[5]), pack_pair<__half>(values[6], values[7]));
}
template <>
__device__ __forceinline__ void store_vector<__nv_bfloat16>(__nv_bfloat16* out, const float* values) {
  *reinterpret_cast<uint4*>(out) =
      make_uint4(pack_pair<__nv_bfloat16>(values[0], values[1]), pack_pair<__nv_bfloat16>(values[2], values[3]),
                 pack_pair<__nv_bfloat16>(values[4], values[5]), pack_pair<__nv_bfloat16>(values[6], values[7]));
}

// Writes the staged tile (`Planes` partial sums over k, added in a fixed order) with whole-row coalesced stores. All
// threads of the block call it, after a barrier behind the writes to `staging`.
template <typename Out, int TileM, int TileN, int Planes, int Threads>
__device__ __forceinline__ void store_tile_as(const GemmProblem& problem, const float* staging, int batch, int row0,
                                              int column0) {
  constexpr int kWidth = 16 / sizeof(Out);
  constexpr int kPerRow = TileN / kWidth;
  constexpr int kPitch = kStagingPitch<TileN>;
  Out* const out = static_cast<Out*>(problem.out) + static_cast<int64_t>(batch) * problem.m * problem.n;
  const Out* const c = static_cast<const Out*>(problem.c) + batch * problem.c_batch;
#pragma unroll 1
  for (int item = threadIdx.x; item < TileM * kPerRow; item += Threads) {
    const int row = item / kPerRow;
    const int column = item % kPerRow * kWidth;
    if (row0 + row >= problem.m || column0 + column >= problem.n) continue;
    float values[kWidth];
#pragma unroll
    for (int group = 0; group < kWidth; group += 4) {
      const float* const source = staging + row * kPitch + column + group;
      float4 sum = *reinterpret_cast<const float4*>(source);
#pragma unroll
      for (int plane = 1; plane < Planes; ++plane) {
        const float4 part = *reinterpret_cast<const float4*>(source + plane * TileM * kPitch);
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
      }
      values[group] = problem.alpha * sum.x;
      values[group + 1] = problem.alpha * sum.y;
      values[group + 2] = problem.alpha * sum.z;
      values[group + 3] = problem.alpha * sum.w;
    }
    Out* const target = out + static_cast<int64_t>(row0 + row) * problem.n + column0 + column;
    if (problem.out_vector) {
      if (problem.c != nullptr) {
        const uint4 loaded = *reinterpret_cast<const uint4*>(c + (row0 + row) * problem.c_m + column0 + column);
        const Out* const added = reinterpret_cast<const Out*>(&loaded);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] += problem.beta * to_float(added[i]);
      }
      store_vector(target, values);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (column0 + column + i >= problem.n) continue;
        float value = values[i];
        if (problem.c != nullptr) {
          value += problem.beta * to_float(c[(row0 + row) * problem.c_m + (column0 + column + i) * problem.c_n]);
        }
        target[i] = from_float<Out>(value);
      }
    }
  }
}

template <typename T, int TileM, int TileN, int Planes, int Threads>
__device__ __forceinline__ void store_tile(const GemmProblem& problem, const float* staging, int batch, int row0,
                                           int column0) {
  if (problem.out_float) {
    store_tile_as<float, TileM, TileN, Planes, Threads>(problem, staging, batch, row0, column0);
  } else {
    store_tile_as<T, TileM, TileN, Planes, Threads>(problem, staging, batch, row0, column0);
  }
}

}  // namespace cuda_llm_ops::cuda
