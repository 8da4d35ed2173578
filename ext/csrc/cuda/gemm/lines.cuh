// Lines of 2-byte elements that begin at any element: their aligned granules of 16 bytes, and 16 bytes out of two of
// them.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda {

// The 16 bytes at an address that is a multiple of 16, of which those at or behind `end` are not touched, and read as
// zero.
__device__ __forceinline__ uint4 load_until(const char* address, const char* end) {
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (address + 2 * i + 2 <= end) {
      words[i / 2] |= static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(address + 2 * i)) << (i % 2 * 16);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The 16 bytes that begin `shift` bytes (even, less than 16) into `low`, and go on in `high`.
__device__ __forceinline__ uint4 shifted_chunk(const uint4& low, const uint4& high, uint32_t shift) {
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
  }
  const uint32_t bits = shift % 4 * 8;
  return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                    __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}

// Of a chunk only the first `bytes` bytes (even; may be beyond 0 and 16), the others zero.
__device__ __forceinline__ uint4 first_bytes(const uint4& chunk, int bytes) {
  const auto word = [bytes](uint32_t value, int at) {
    return bytes >= at + 4 ? value : bytes > at ? value & 0xffffu : 0u;
  };
  return make_uint4(word(chunk.x, 0), word(chunk.y, 4), word(chunk.z, 8), word(chunk.w, 12));
}

// The chunk of the next lane.
__device__ __forceinline__ uint4 of_next_lane(const uint4& chunk) {
  return make_uint4(__shfl_down_sync(0xffffffff, chunk.x, 1), __shfl_down_sync(0xffffffff, chunk.y, 1),
                    __shfl_down_sync(0xffffffff, chunk.z, 1), __shfl_down_sync(0xffffffff, chunk.w, 1));
}

}  // namespace cuda_llm_ops::cuda
