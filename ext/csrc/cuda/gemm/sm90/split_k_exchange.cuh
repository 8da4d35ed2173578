// Split-K within a cluster: how the blocks that share a tile exchange their parts, add them, and store them.
//
//   slice       Each block owns some rows of the tile. Every block writes its part of the tile to shared memory, cut
//               into slices by owner: write_slices(). The kernel copies each slice to its owner.
//   line        A slice is lines x length float32. Usually a line is an owned row of D, tile_n long. With `swap` (D is
//               out transposed) there are tile_n lines, one for each row of out, as long as there are owned rows of D.
//               So a store always runs along a row of out.
//   sum         The owner adds the parts in the order of their blocks, so that the result does not depend on timing. It
//               stores 8 elements a thread: store_chunk(). The loop stands in both kernels, because the compiler makes
//               other machine code of it as a function.
#pragma once

#include "mainloop.cuh"

namespace cuda_llm_ops::cuda::sm90 {

// Floats between lines: the bank of (line, position) must differ over a warp's stores.
__host__ __device__ constexpr int line_padding(bool swap) { return swap ? 4 : 8; }

// Rows of D that one block of a split owns: a multiple of 8, so that 16-byte stores do not straddle owners.
__host__ __device__ constexpr int owned_rows(int tile_m, int split) {
  return ((tile_m + split - 1) / split + 7) / 8 * 8;
}

// Bytes that a block needs for its own parts and for those that it receives.
template <typename Tile, bool Swap>
__host__ __device__ constexpr int parts_bytes(int split) {
  const int owned = owned_rows(Tile::m, split);
  const int lines = Swap ? Tile::n : owned, length = Swap ? owned : Tile::n;
  return (2 * split - 1) * lines * (length + line_padding(Swap)) * 4;
}

template <typename Tile>
__host__ __device__ constexpr int barrier_bytes() {
  return Tile::stages * 16 + 8;
}

// 8 elements along a row of out, from their sums over k.
template <typename T>
__device__ __forceinline__ void store_chunk(const KernelArguments& arguments, int batch, int row, int column,
                                            int out_rows, int out_columns, float (&value)[8]) {
  const int valid = min(8, out_columns - column);
#pragma unroll
  for (int e = 0; e < 8; ++e) value[e] *= arguments.alpha;
  if (arguments.beta != 0.0f) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < valid) value[e] += arguments.beta * load_c<T>(arguments, batch, row, column + e);
    }
  }
  const int64_t offset = (static_cast<int64_t>(batch) * out_rows + row) * out_columns + column;
  const bool whole = arguments.vector_store && valid == 8;
  if (arguments.out_float) {
    float* const out = static_cast<float*>(arguments.out) + offset;
    if (whole) {
      reinterpret_cast<float4*>(out)[0] = make_float4(value[0], value[1], value[2], value[3]);
      reinterpret_cast<float4*>(out)[1] = make_float4(value[4], value[5], value[6], value[7]);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e < valid) out[e] = value[e];
      }
    }
  } else {
    T* const out = static_cast<T*>(arguments.out) + offset;
    if (whole) {
      *reinterpret_cast<uint4*>(out) =
          make_uint4(ptx::cvt_rn_x2<T>(value[0], value[1]), ptx::cvt_rn_x2<T>(value[2], value[3]),
                     ptx::cvt_rn_x2<T>(value[4], value[5]), ptx::cvt_rn_x2<T>(value[6], value[7]));
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e < valid) out[e] = narrow<T>(value[e]);
      }
    }
  }
}

// Writes a warpgroup's accumulators as slices, from shared address `slices` on.
template <typename Tile, bool Swap>
__device__ __forceinline__ void write_slices(const float (&d)[Tile::m64s][Tile::registers], uint32_t slices,
                                             int slice_bytes, int owned, int pitch, int warp, int lane) {
  const int warpgroup = warp / 4;
#pragma unroll
  for (int i = 0; i < Tile::m64s; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warpgroup * Tile::rows + i * 64 + warp % 4 * 16 + half * 8 + lane / 4;
      const int owner = row / owned;
      const int line = row - owner * owned;
      const uint32_t slice = slices + owner * slice_bytes;
#pragma unroll
      for (int g = 0; g < Tile::n / 8; ++g) {
        const int column = g * 8 + lane % 4 * 2;
        const float x = d[i][g * 4 + half * 2], y = d[i][g * 4 + half * 2 + 1];
        if constexpr (Swap) {
          const uint32_t address = slice + (column * pitch + line) * 4;
          ptx::st_shared(address, x);
          ptx::st_shared(address + pitch * 4, y);
        } else {
          ptx::st_shared_v2(slice + (line * pitch + column) * 4, x, y);
        }
      }
    }
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
