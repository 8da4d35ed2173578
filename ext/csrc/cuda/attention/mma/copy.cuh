// Copies of rows of Q, K and V from global to shared memory by cp.async.
//
// Rows in shared memory have a pitch of an odd number of 16-byte chunks: the eight rows of an 8x8 matrix then begin in
// different banks.
#pragma once

#include <cstdint>

#include "../../ptx/cp_async.cuh"
#include "../../ptx/cp_async_ignore.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

__device__ __forceinline__ uint32_t row_offset(int row, int group, int pitch) {
  return static_cast<uint32_t>((row >> 3) * group + (row & 7) * pitch);
}

// How the rows of a block of `Rows` rows are dealt to `Threads` threads for copying: `lanes` lanes side by side in a
// row, each with every lanes-th chunk, as long as whole rounds are left; the odd chunks of all rows together at the
// end.
template <typename C, int Rows, int Threads>
struct Deal {
  static constexpr int lanes = C::raw_chunks < 8 ? 4 : 8;
  static constexpr int rows_at_once = Threads / lanes;
  static constexpr int passes = (Rows + rows_at_once - 1) / rows_at_once;
  static constexpr int rounds = C::raw_chunks / lanes;
  static constexpr int odd = C::raw_chunks % lanes;
  static_assert(passes * rows_at_once == Rows);
};

// Copies the first `bytes` (0 to 16, even) of an aligned chunk, asynchronously, and fills with zeros. Copying a part of
// a chunk counts as reading it whole, so where it reaches past `end`, the end of what is certainly the tensor's,
// elements are copied instead.
__device__ __forceinline__ void copy_chunk(uint32_t to, const char* from, int bytes, const char* end) {
  if (bytes > 0 && bytes < 16 && from + 16 > end) {
    auto* const words = static_cast<uint32_t*>(__cvta_shared_to_generic(to));
    const auto* const elements = reinterpret_cast<const uint16_t*>(from);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 4 * i < bytes ? elements[2 * i] : 0;
      const uint32_t high = 4 * i + 2 < bytes ? elements[2 * i + 1] : 0;
      words[i] = low | high << 16;
    }
  } else {
    ptx::cp_async_cg_16(to, from, bytes);
  }
}

// Copies rows of head_dim elements into shared memory, asynchronously, but for the odd chunks. `from` is the block's
// first row in global memory, `rows` how many rows exist: the others, and the columns at or past head_dim, become
// zeros.
template <typename C, int Rows, int Threads>
__device__ __forceinline__ void copy_rounds(uint32_t shared, const char* from, int stride_bytes, int rows, int head_dim,
                                            int thread) {
  using D = Deal<C, Rows, Threads>;
  const int lane = thread % D::lanes;
  const int row0 = thread / D::lanes;
  const char* const begin = from + static_cast<int64_t>(row0) * stride_bytes + lane * 16;
  const uint32_t to = shared + lane * 16;
  // The aligned chunks that cover an unaligned row: those before its last 16 bytes are whole, wherever it starts.
  if (!C::realigned || head_dim * 2 >= D::rounds * D::lanes * 16) {
#pragma unroll
    for (int pass = 0; pass < D::passes; ++pass) {
      const int row = row0 + pass * D::rows_at_once;
      auto address = reinterpret_cast<uintptr_t>(begin + static_cast<int64_t>(pass * D::rows_at_once) * stride_bytes);
      if constexpr (C::realigned) address &= ~uintptr_t{15};
      const uint32_t to_row = to + row_offset(row, C::group_bytes, C::pitch);
#pragma unroll
      for (int round = 0; round < D::rounds; ++round) {
        const bool nothing = row >= rows || (!C::realigned && (lane + round * D::lanes) * 8 >= head_dim);
        ptx::cp_async_cg_16_unless(nothing, to_row + round * D::lanes * 16,
                                   reinterpret_cast<const char*>(address) + round * D::lanes * 16);
      }
    }
  } else {
    const char* const end = from + static_cast<int64_t>(rows - 1) * stride_bytes + head_dim * 2;
#pragma unroll 1
    for (int row = row0; row < Rows; row += D::rows_at_once) {
      const auto address = reinterpret_cast<uintptr_t>(from + static_cast<int64_t>(row) * stride_bytes + lane * 16);
      const char* const of_row = reinterpret_cast<const char*>(address & ~uintptr_t{15});
      const int left = row < rows ? head_dim * 2 + static_cast<int>(address & 15) - lane * 16 : 0;
#pragma unroll 1
      for (int at = 0; at < D::rounds * D::lanes * 16; at += D::lanes * 16) {
        copy_chunk(to + row_offset(row, C::group_bytes, C::pitch) + at, of_row + at, min(16, max(0, left - at)), end);
      }
    }
  }
}

// The odd chunks of the rows: `index` counts them, row by row.
template <typename C, int Rows, int Threads>
__device__ __forceinline__ void copy_odd(uint32_t shared, const char* from, int stride_bytes, int rows, int head_dim,
                                         int index) {
  using D = Deal<C, Rows, Threads>;
  const int row = index / D::odd;
  const int chunk = D::rounds * D::lanes + index % D::odd;
  const auto address = reinterpret_cast<uintptr_t>(from + static_cast<int64_t>(row) * stride_bytes);
  const uint32_t to = shared + row_offset(row, C::group_bytes, C::pitch) + chunk * 16;
  if constexpr (C::realigned) {
    const int left = row < rows ? head_dim * 2 + static_cast<int>(address & 15) - chunk * 16 : 0;
    copy_chunk(to, reinterpret_cast<const char*>(address & ~uintptr_t{15}) + chunk * 16, min(16, max(0, left)),
               from + static_cast<int64_t>(rows - 1) * stride_bytes + head_dim * 2);
  } else {
    ptx::cp_async_cg_16_unless(row >= rows || chunk * 8 >= head_dim, to,
                               reinterpret_cast<const char*>(address) + chunk * 16);
  }
}

}  // namespace cuda_llm_ops::cuda::flash_mma
