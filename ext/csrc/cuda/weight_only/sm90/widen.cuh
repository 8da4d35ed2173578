// Packed weights of a stage as fragments of the first operand, for both Hopper kernels: from shared memory, exactly.
#pragma once

#include "../../numeric.cuh"
#include "../../ptx/shared_vectors.cuh"
#include "../../ptx/shared_words.cuh"
#include "../numbers.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

__device__ __forceinline__ uint32_t word_of(const uint4& of, int at) {
  return at == 0 ? of.x : at == 1 ? of.y : at == 2 ? of.z : of.w;
}

// The zero points of a lane's two columns in a group, as what is taken from the widened numbers.
struct Offsets {
  uint32_t low, high;
};

// The fragments of a packed tile: 64 of k, in steps of 16. With Fewer, times fewer_unit (../numbers.cuh).
template <typename Tile, bool Fewer = false>
__device__ __forceinline__ void widen(uint32_t (&a)[4][4], uint32_t address, const Offsets& offsets) {
  using T = typename Tile::T;
  if constexpr (Tile::bits == 4) {
    const uint4 words = ptx::load_shared_vector(address);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if constexpr (Fewer) {
        widen_4_fewer<T>(word_of(words, s), offsets.low, offsets.high, a[s]);
      } else {
        widen_4<T>(word_of(words, s), offsets.low, offsets.high, a[s]);
      }
    }
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = ptx::load_shared_vector(address + half * 512);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        if constexpr (Fewer) {
          widen_8_fewer<T>(word_of(words, 2 * s), word_of(words, 2 * s + 1), a[2 * half + s]);
        } else {
          widen_8<T>(word_of(words, 2 * s), word_of(words, 2 * s + 1), a[2 * half + s]);
        }
      }
    }
  }
}

// The scales and zero points of a lane's two columns in a group, which are 8 apart. Addresses of the first in shared
// memory.
template <typename T, bool Fewer = false>
__device__ __forceinline__ void load_group(float (&scale)[2], Offsets& offsets, uint32_t scales, uint32_t zeros,
                                           bool has_zeros) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint16_t bits = ptx::load_shared_16(scales + 16 * h);
    scale[h] = to_float(*reinterpret_cast<const T*>(&bits));
  }
  uint32_t low = 8, high = 8;
  if (has_zeros) {
    low = ptx::load_shared_8(zeros) & 15;
    high = ptx::load_shared_8(zeros + 8) & 15;
  }
  if constexpr (Fewer) {
    offsets = {fewer_low<T>(low), fewer_high<T>(high)};
  } else {
    offsets = {offset_low<T>(low), offset_high<T>(high)};
  }
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
