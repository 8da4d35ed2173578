// The pieces that the mma.sync kernels share: where a tile of a or b lies in shared memory, how a warp reads fragments
// from it, and how accumulators go to the staging tile of the epilogue.
//
// A tile has `Lines` lines of `Chunks` 16-byte chunks (8 elements). K-major: a line is one row of a (column of b), its
// chunks run along k. Else a line is one k, its chunks run along m or n. Chunk c of line l lies at position
// c ^ swizzle(l) of the line, so that the eight rows of an ldmatrix matrix (eight lines, the same c) and the eight
// chunks of a cp.async phase lie in different banks.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"

namespace cuda_llm_ops::cuda {

template <int Chunks>
__device__ __forceinline__ int swizzle(int line) {
  static_assert((Chunks & (Chunks - 1)) == 0 && Chunks >= 2, "a line is a power of two of chunks");
  if constexpr (Chunks >= 8) {
    return line & 7;
  } else {
    return (line / (8 / Chunks)) & (Chunks - 1);  // 128 bytes of banks hold several lines
  }
}

// True if a 16-byte copy, of which only `bytes` bytes count, would reach behind the operand. cp.async reads only those
// bytes, but compute-sanitizer reports an address range behind an allocation.
__device__ __forceinline__ bool crosses_end(const char* source, int bytes, const char* end) {
  return bytes > 0 && bytes < 16 && source + 16 > end;
}

// The same as cp.async with `bytes` source bytes, but element by element and synchronously.
__device__ __forceinline__ void copy_elements(uint32_t shared, const char* source, int bytes) {
  uint16_t* const target = static_cast<uint16_t*>(__cvta_shared_to_generic(shared));
#pragma unroll 1
  for (int i = 0; i < 8; ++i) target[i] = 2 * i < bytes ? reinterpret_cast<const uint16_t*>(source)[i] : uint16_t{0};
}

// Reads 16x16 blocks of an operand's tile (`Extent` along m or n, `TileK` along k) as mma.sync fragments: block i of a
// warp is rows 16 i to 16 i + 15 from its `origin`, step s is k from 16 s to 16 s + 15.
// For a: registers a[0..3] of one m16n8k16. For b: b[0], b[1] of columns 0-7, then of columns 8-15.
template <int Extent, int TileK, bool KMajor, bool IsA>
class FragmentReader {
 public:
  __device__ __forceinline__ FragmentReader(int lane, int origin) {
    const int matrix = lane >> 3;
    const int row = lane & 7;
    const int outer = IsA ? (matrix & 1) : (matrix >> 1);  // which 8 of the 16 along m or n
    const int inner = IsA ? (matrix >> 1) : (matrix & 1);  // which 8 of the 16 along k
    if constexpr (KMajor) {
      line_ = (origin + outer * 8 + row) * kLineBytes;
      chunk_ = (inner ^ swizzle<kChunks>(row)) << 4;
    } else {
      line_ = (inner * 8 + row) * kLineBytes;
      chunk_ = ((origin / 8 + outer) ^ swizzle<kChunks>(row)) << 4;
    }
  }

  __device__ __forceinline__ void read(uint32_t (&registers)[4], uint32_t tile, int step, int block) const {
    if constexpr (KMajor) {
      ptx::ldmatrix_x4(registers, tile + line_ + block * 16 * kLineBytes + (chunk_ ^ (step << 5)));
    } else {
      ptx::ldmatrix_x4_trans(registers, tile + line_ + step * 16 * kLineBytes + (chunk_ ^ (block << 5)));
    }
  }

 private:
  static constexpr int kChunks = (KMajor ? TileK : Extent) / 8;
  static constexpr int kLineBytes = kChunks * 16;
  uint32_t line_;   // bytes
  uint32_t chunk_;  // bytes, swizzled
};

// accumulators += a b for one step of 16 along k: BlocksM blocks of 16 rows times BlocksN blocks of 16 columns. Odd
// rows run backwards, so that two neighbouring instructions share a fragment.
template <typename T, int BlocksM, int BlocksN>
__device__ __forceinline__ void multiply_fragments(float (&accumulators)[BlocksM][2 * BlocksN][4],
                                                   const uint32_t (&a)[BlocksM][4], const uint32_t (&b)[BlocksN][4]) {
#pragma unroll
  for (int i = 0; i < BlocksM; ++i) {
#pragma unroll
    for (int forward = 0; forward < 2 * BlocksN; ++forward) {
      const int j = i % 2 == 0 ? forward : 2 * BlocksN - 1 - forward;
      ptx::mma_sync_m16n8k16<T>(accumulators[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Writes a warp's accumulators to the staging tile, whose rows are `Pitch` floats.
template <int Pitch, int Blocks16, int Blocks8>
__device__ __forceinline__ void stage_accumulators(float* staging, const float (&accumulators)[Blocks16][Blocks8][4],
                                                   int lane, int row0, int column0) {
  float* const mine = staging + (row0 + lane / 4) * Pitch + column0 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Blocks16; ++i) {
#pragma unroll
    for (int j = 0; j < Blocks8; ++j) {
      float* const at = mine + i * 16 * Pitch + j * 8;
      *reinterpret_cast<float2*>(at) = make_float2(accumulators[i][j][0], accumulators[i][j][1]);
      *reinterpret_cast<float2*>(at + 8 * Pitch) = make_float2(accumulators[i][j][2], accumulators[i][j][3]);
    }
  }
}

}  // namespace cuda_llm_ops::cuda
