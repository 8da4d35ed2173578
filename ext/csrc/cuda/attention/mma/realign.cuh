// Realignment of rows in shared memory. cp.async copies the aligned 16-byte chunks that cover a row; here the row moves
// to the left by its misalignment, in place, and becomes zero behind its end.
#pragma once

#include <cstdint>

#include "config.cuh"
#include "copy.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

// Moves `Count` chunks from `row` on left by 4 * Words + (odd ? 2 : 0) bytes, the last first; `after` is what the chunk
// behind them holds. Chunks from `valid` on are not written, those past `readable` count as zeros; the first Always are
// both valid and readable.
template <int Count, int Always, int Words, int Unroll>
__device__ __forceinline__ void shift_chunks(uint4* row, int valid, int readable, bool odd, uint4 after) {
  const uint32_t select = odd ? 0x5432u : 0x3210u;
#pragma unroll Unroll
  for (int chunk = Count - 1; chunk >= 0; --chunk) {
    uint4 low = make_uint4(0, 0, 0, 0);
    if (chunk < Always || chunk <= readable) low = row[chunk];
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, after.x, after.y, after.z, after.w};
    uint32_t moved[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      moved[i] = __byte_perm(words[i + Words], words[i + Words + 1 < 8 ? i + Words + 1 : 7], select);
    }
    if (chunk < Always || chunk < valid) row[chunk] = make_uint4(moved[0], moved[1], moved[2], moved[3]);
    after = low;
  }
}

// Shifts one row in place by `shift` bytes to the left; `Parts` lanes of the warp share a row. The whole warp calls.
template <typename C, int Parts>
__device__ __forceinline__ void realign_row(unsigned char* bytes, int shift, int part) {
  constexpr int each = (C::chunks + Parts - 1) / Parts;
  constexpr int in_last = C::chunks - (Parts - 1) * each;
  constexpr int always = in_last > 0 ? in_last : 0;
  constexpr int unroll = C::shift_ahead ? 3 : each;  // as registers allow
  uint4* const row = reinterpret_cast<uint4*>(bytes) + part * each;
  const int valid = min(each, C::chunks - part * each);
  const int readable = min(valid, C::raw_chunks - 1 - part * each);
  const uint4 after = readable == each ? row[each] : make_uint4(0, 0, 0, 0);
  __syncwarp();  // before the next lane overwrites it
  const bool odd = shift & 2;
  // Rows of a warp are 8 apart: where rows are dense they share one misalignment, and the warp takes one branch.
  switch (shift >> 2) {
    case 0:
      if (odd) shift_chunks<each, always, 0, unroll>(row, valid, readable, odd, after);
      break;
    case 1: shift_chunks<each, always, 1, unroll>(row, valid, readable, odd, after); break;
    case 2: shift_chunks<each, always, 2, unroll>(row, valid, readable, odd, after); break;
    default: shift_chunks<each, always, 3, unroll>(row, valid, readable, odd, after); break;
  }
}

// How far a row's first element lies behind a multiple of 16 bytes.
__device__ __forceinline__ int misalignment(const void* tensor, int element) {
  return static_cast<int>(
      (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tensor)) + 2u * static_cast<uint32_t>(element)) & 15u);
}

// Realigns a block of K and of V: warp w takes the rows r with r % 8 = w (and w + Warps). `k` and `v` are the elements
// at which the block's first rows start.
template <typename C>
__device__ __forceinline__ void realign_block(unsigned char* keys, const Parameters& p, int k, int v, int warp,
                                              int lane) {
  constexpr int octets = C::block_n / 8;
  constexpr int parts = 32 / (2 * octets);
  static_assert(parts >= 1 && parts * 2 * octets == 32);
  const bool is_value = lane / octets % 2;
  const int part = lane / (2 * octets);
  const void* tensor = is_value ? p.v : p.k;
  const int stride = is_value ? p.v_stride.seq : p.k_stride.seq;
  const int first = is_value ? v : k;
#pragma unroll
  for (int residue = 0; residue < 8; residue += C::warps) {
    const int row = lane % octets * 8 + residue + warp;
    realign_row<C, parts>(keys + (is_value ? C::tile_bytes : 0) + row_offset(row, C::group_bytes, C::pitch),
                          misalignment(tensor, first + row * stride), part);
  }
}

}  // namespace cuda_llm_ops::cuda::flash_mma
