// Realignment of eight rows of a tensor, eight apart, by one warp: from wherever they begin to columns of 16 bytes.
//
// Rows that TMA cannot read begin between multiples of 16 bytes. But rows eight apart all begin at the same distance
// from such a multiple, whatever their pitch. Their raw chunks, which do begin at multiples, are read as 8 x 8 matrices
// and transposed (ldmatrix). Then a column of eight rows has 16 bytes, and the distance only decides where columns go:
// nothing is shifted. Core matrices of realigned tiles are [8 rows][column][row], without swizzle.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/stmatrix.cuh"
#include "../../ptx/tma.cuh"
#include "instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// The row, of 64, at a place of a realigned tile. Keys may be in any order if the rows of V are in the same; masks and
// outputs take the order into account.
__host__ __device__ constexpr int realigned_row(int place) { return place % 8 * 8 + place / 8; }

// 64 rows of a tensor.
struct Source {
  uint64_t from;  // the first of eight rows that are eight apart
  int64_t pitch;  // of rows, bytes
  uint64_t end;   // of the tensor
  int valid;      // number of rows that exist from there on
};

__device__ __forceinline__ uint64_t address_of(const Rows& source, int batch, int head, int64_t row) {
  return reinterpret_cast<uint64_t>(source.pointer) +
         static_cast<uint64_t>((batch * source.batch + head * source.head + row * source.seq) * 2);
}

// Whether copies of `groups` groups, each one row further, need no check: all rows exist, and all chunks are inside the
// tensor.
template <typename C>
__device__ __forceinline__ bool inside(const Source& source, int groups) {
  const uint64_t last = source.from + static_cast<uint64_t>((55 + groups) * source.pitch);
  return source.valid >= 55 + groups + 1 && max(source.from, last) + C::raw_chunks * 16 <= source.end;
}

// A run: 64 rows that all exist, follow one another, and may be read in multiples of 16 bytes; its begin and end.
__device__ __forceinline__ uint64_t begin_of_run(const Source& source) { return source.from & ~uint64_t{15}; }
__device__ __forceinline__ uint64_t end_of_run(const Source& source) {
  return (source.from + static_cast<uint64_t>(64 * source.pitch) + 15) & ~uint64_t{15};
}
__device__ __forceinline__ uint32_t bytes_of_run(const Source& source) {
  return static_cast<uint32_t>(end_of_run(source) - begin_of_run(source));
}
__device__ __forceinline__ bool is_run(const Source& source, int head_dim) {
  return source.pitch == head_dim * 2 && source.valid >= 64 && end_of_run(source) <= source.end;
}

// One bulk copy of a run to shared memory.
__device__ __forceinline__ void load_run(uint32_t to, const Source& source, uint32_t full) {
  ptx::bulk_load(to, reinterpret_cast<const void*>(begin_of_run(source)), bytes_of_run(source), full);
}

// Prefetches rows into the L2 cache, so that the copies that follow wait only for that.
template <typename C>
__device__ __forceinline__ void prefetch_rows(const Source& source, int count, int head_dim, int lane) {
  const int rows = min(source.valid, count);
  if (source.pitch == head_dim * 2) {
    if (lane == 0 && rows > 0) {
      const uint64_t from = source.from & ~uint64_t{15};
      ptx::bulk_prefetch(reinterpret_cast<const void*>(from), static_cast<uint32_t>(rows * head_dim * 2) & ~15u);
    }
    return;
  }
#pragma unroll 1
  for (int row = lane; row < rows; row += 32) {
    const uint64_t from = source.from + static_cast<uint64_t>(row * source.pitch);
#pragma unroll 1
    for (int at = 0; at < C::chunks * 16; at += 128) {
      ptx::prefetch_l2(reinterpret_cast<const void*>(from + min(at, head_dim * 2 - 1)));
    }
  }
}

template <typename C>
struct EightRows {
  static constexpr int count = C::raw_chunks, fours = (count + 3) / 4;
  static constexpr int columns = C::chunks * 8;
  static constexpr int group_bytes = columns * 16;  // of eight realigned rows
  const int lane, head_dim;

  // Of each chunk of eight columns, a lane has column lane / 4 of two rows.
  struct Loaded {
    uint32_t chunk[fours][4];
  };

  // This lane's place in raw rows in shared memory, each of which begins at the multiple of 16 bytes before its first
  // byte.
  __device__ __forceinline__ uint32_t raw_part(uint32_t pitch = C::raw_pitch) const {
    return lane % 8 * pitch + lane / 8 * 16;
  }
  // The same in a run, whose rows follow one another as in global memory, from address `begin` rounded down: for one
  // group.
  __device__ __forceinline__ uint32_t run_part(uint32_t begin, int group) const {
    const uint32_t pitch = static_cast<uint32_t>(head_dim) * 2;
    return ((begin & 15) + group * pitch & ~15u) + raw_part(8 * pitch);
  }
  static __device__ __forceinline__ void load(Loaded& z, uint32_t from) {
#pragma unroll
    for (int k = 0; k < fours; ++k) {
      const int left = count - 4 * k;
      if (left >= 4) {
        ptx::ldmatrix_x4_trans(z.chunk[k], from + k * 64);
      } else {
        if (left >= 2) ptx::ldmatrix_x2_trans(z.chunk[k][0], z.chunk[k][1], from + k * 64);
        if (left == 1) ptx::ldmatrix_x1_trans(z.chunk[k][0], from + k * 64);
        if (left == 3) ptx::ldmatrix_x1_trans(z.chunk[k][2], from + k * 64 + 32);
      }
    }
  }

  // This lane's place in the core matrices of these rows.
  __device__ __forceinline__ uint32_t part() const { return lane * 4; }

  // Writes core matrices. The first `offset` bytes of a row's first chunk do not belong to the row. mine: this lane's
  // place.
  __device__ __forceinline__ void store(const Loaded& z, uint32_t offset, unsigned char* mine) const {
    const int first = lane / 4 - static_cast<int>(offset / 2);
    unsigned char* const to = mine - offset * 8;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      if ((k > 0 || first >= 0) && (8 * k + 8 <= C::least_head_dim || first < head_dim - 8 * k)) {
        *reinterpret_cast<uint32_t*>(to + k * 128) = z.chunk[k / 4][k % 4];
      }
    }
    unsigned char* const behind = mine + (head_dim * 16 + lane * 12);
#pragma unroll
    for (int k = 0; 32 * k < columns - C::least_head_dim; ++k) {
      const int column = head_dim + lane + 32 * k;
      if (column < columns) *reinterpret_cast<uint4*>(behind + k * 512) = behind_row(column);
    }
  }
  // Columns past the rows' end are zeros, because 0 times NaN is NaN. But the last column of V is ones if it is free.
  // That of K is, too: the queries have zeros there, so this function need not know whether a tile is of K or V.
  static __device__ __forceinline__ uint4 behind_row(int column) {
    const uint32_t word = C::ones_column && column == columns - 1 ? C::one * 0x10001u : 0;
    return make_uint4(word, word, word, word);
  }

  // The same for queries, in shared memory, without ones. Destroys z.
  __device__ __forceinline__ void store_queries(Loaded& z, uint32_t offset, uint32_t image) const {
    const int first = lane / 4 - static_cast<int>(offset / 2);  // this lane's column of the first chunk, in registers
    if constexpr (C::overlap) {
      // Two steps of the scores' product have these columns. A half is exact, unless it is a subnormal number: then the
      // last bit, 2^-25 in float16, may be lost.
      uint32_t &l = z.chunk[(count - 3) / 4][(count - 3) % 4], &h = z.chunk[(count - 2) / 4][(count - 2) % 4];
      const uint32_t half_l = halve_pair<typename C::T>(l), half_h = halve_pair<typename C::T>(h);
      l = first < 0 ? l : half_l;
      h = first < 0 ? half_h : h;
    }
    constexpr int whole = C::least_head_dim / 8;  // before that chunk all but the first are inside of rows
    const uint32_t to = image + lane * 16 - offset * 8;
#pragma unroll
    for (int k = 1; k < whole; k += 4) {
      const auto chunk = [&](int i) { return z.chunk[(k + i) / 4][(k + i) % 4]; };
      if (k + 4 <= whole) {
        ptx::stmatrix_x4(to + k * 128, chunk(0), chunk(1), chunk(2), chunk(3));
      } else {
        if (whole - k >= 2) ptx::stmatrix_x2(to + k * 128, chunk(0), chunk(1));
        if (whole - k == 1) ptx::stmatrix_x1(to + k * 128, chunk(0));
        if (whole - k == 3) ptx::stmatrix_x1(to + k * 128 + 256, chunk(2));
      }
    }
    const uint32_t words = image + lane * 4 - offset * 8;
    if (first >= 0 && (whole > 0 || first < head_dim)) ptx::store_shared(words, static_cast<int>(z.chunk[0][0]));
#pragma unroll
    for (int k = whole > 1 ? whole : 1; k < count; ++k) {
      if (first < head_dim - 8 * k) ptx::store_shared(words + k * 128, static_cast<int>(z.chunk[k / 4][k % 4]));
    }
    const uint32_t behind = image + (head_dim + lane) * 16;
#pragma unroll
    for (int k = 0; 32 * k < columns - C::least_head_dim; ++k) {
      if (head_dim + lane + 32 * k < columns) ptx::store_shared_zeros(behind + k * 512);
    }
  }

  // The global address of this lane's first chunk, not yet rounded down to a multiple of 16. The lane has every fourth
  // chunk.
  __device__ __forceinline__ uint64_t place_in(const Source& source) const {
    return source.from + static_cast<uint64_t>(lane / 4 * 8 * source.pitch) + lane % 4 * 16;
  }
  // Their place in a buffer of raw rows.
  __device__ __forceinline__ uint32_t copied_part() const { return lane / 4 * C::raw_pitch + lane % 4 * 16; }

  // Starts the copy of the raw chunks of eight rows; rows that do not exist become zeros. place: place_in(); to: this
  // lane's part.
  __device__ __forceinline__ void fetch_checked(uint64_t place, uint64_t end, int valid, uint32_t to) const {
    const int bytes = static_cast<uint32_t>(place) % 16 + head_dim * 2;
    const uint64_t at = place & ~uint64_t{15};
    // The bytes of the row that the tensor has: the last chunk may reach past the tensor's end.
    const int there = lane / 4 * 8 < valid && at < end ? static_cast<int>(min(end - at, uint64_t{4096})) : 0;
#pragma unroll 1
    for (int k = 0; (lane % 4 + 4 * k) * 16 < bytes; ++k) {
      const int size = max(min(there - k * 64, 16), 0);
      if (size % 16 == 0) {
        ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64), size);
      } else {
        // The tensor ends within this chunk, so elements are copied one by one: nothing past the end is read.
#pragma unroll 1
        for (int e = 0; e < 16; e += 2) {
          *static_cast<uint16_t*>(__cvta_shared_to_generic(to + k * 64 + e)) =
              e < size ? *reinterpret_cast<const uint16_t*>(at + k * 64 + e) : 0;
        }
      }
    }
  }
  // As above, if all eight rows and all of their chunks exist. at: a multiple of 16.
  __device__ __forceinline__ void fetch_whole(uint64_t at, uint32_t to) const {
#pragma unroll
    for (int k = 0; k < fours; ++k) {
      if (4 * k + 4 <= count || lane % 4 + 4 * k < count) {
        ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64));
      }
    }
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
