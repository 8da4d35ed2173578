// Eight rows, eight apart, brought from where they lie to core matrices by one warp, on the tensor cores.
//
// Such rows are equally far from a multiple of 16 bytes: all are shifted by one distance. Raw chunks z of 16
// bytes, as ldmatrix brings them (four registers of eight rows by eight columns), are A of mma.sync; B selects, with a 1 in
// each column, eight of sixteen neighbouring columns; eight rows' chunks b and b + 1 are the sixteen rows of one product:
//
//   A = | z[b]      z[b + 1] |    B = 1 at (n + distance, n)    D = | chunk b     |  of the eight rows
//       | z[b + 1]  z[b + 2] |                                      | chunk b + 1 |
//
// Elements go through as float16, whatever they are: 1 x + 0 is x, but 0 for -0. Where float16 has infinities and NaN
// (bfloat16 from 2^121 on), 0 x is NaN and spoils its neighbours: NaN in any product is looked for, and the rows are then
// put together element by element.
//
// A lane has two neighbouring columns of every chunk. Four chunks of it go out as 16 bytes, so that columns of a tile are in
// an order of its own: of each 32, physical chunk t, place 2 b + e is column 8 b + 2 t + e. Q's and K's agree; V's is the
// outputs', who know it. Chunks past a multiple of four keep their order.
#pragma once

#include <cstdint>

#include "../ptx/ex2.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../ptx/mma_sync.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

template <typename C>
struct Shift {
  static constexpr int permuted = C::v_chunks / 4 * 4;
  const int lane, head_dim;

  // Where this lane's part of the rows begins, if they begin so many bytes apart.
  __device__ __forceinline__ uint32_t raw_part(uint32_t pitch) const { return lane % 8 * pitch + (lane / 8 + 1) / 2 * 16; }
  // The same of the core matrices.
  __device__ __forceinline__ uint32_t part() const { return lane % 4 * 128 + lane / 4 * 16; }

  // Elements of chunk b that this lane has: those inside of the row.
  __device__ __forceinline__ uint32_t inside(int b) const {
    return __funnelshift_lc(~0u, 0, max((head_dim - 8 * b - lane % 4 * 2) * 16, 0));
  }

  // `offset` bytes of a row's first chunk are not the row's. from, to: this lane's parts.
  __device__ __forceinline__ void run(uint32_t from, uint32_t offset, int chunks, unsigned char* to) const {
    // Chunks behind a row's last may hold anything: that one is read in their stead, and not selected.
    const int last = static_cast<int>((offset + head_dim * 2 - 1) & ~15u) - (lane / 8 + 1) / 2 * 16;
    // Column n = lane / 4 of B has its 1 at row n + offset / 2; a lane has rows 2 t, 2 t + 1 and those 8 on.
    const uint32_t place = (lane / 4 - lane % 4 * 2) * 16 + offset * 8;
    const uint32_t b0 = shifted(0x3c00u, place), b1 = shifted(0x3c00u, place - 128);
    // Eight chunks' loads go first, then their products, and their stores last, after the next loads.
    constexpr int pairs = (C::v_chunks + 1) / 2;
    uint32_t z[pairs][4], x[2 * pairs + 2], most = 0;
    const auto load = [&](int first, int end) {
#pragma unroll
      for (int i = first; i < end && i < pairs; ++i) {
        const int at = i * 32;
        ptx::ldmatrix_x4(z[i], from + (2 * C::least_head_dim > at + 32 ? at : min(at, last)));
      }
    };
    load(0, 4);
#pragma unroll
    for (int first = 0; first < pairs; first += 4) {
#pragma unroll
      for (int i = first; i < first + 4 && i < pairs; ++i) {
        uint32_t d[2];
        ptx::mma_sync_m16n8k16_f16_zero(d, z[i], b0, b1);
        most = ptx::max3_s16x2(most, d[0], d[1]);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int chunk = 2 * i + j;
          x[chunk] = (chunk + 1) * 8 > C::least_head_dim ? d[j] & inside(chunk) : d[j];
        }
      }
      load(first + 4, first + 8);
#pragma unroll
      for (int k = 2 * first; k < 2 * first + 8 && k < C::v_chunks; ++k) {
        if (k >= permuted) {
          *reinterpret_cast<uint32_t*>(to + natural(k)) = x[k];
        } else if (k % 4 == 3) {
          *reinterpret_cast<uint4*>(to + k / 4 * 512) = make_uint4(x[k - 3], x[k - 2], x[k - 1], x[k]);
        }
      }
    }
    if (C::k_chunks > C::v_chunks && chunks > C::v_chunks) *reinterpret_cast<uint32_t*>(to + natural(C::v_chunks)) = 0;
    // Tensor cores' NaN is 0x7fff, the largest of all as an integer.
    if (__any_sync(0xffffffffu, (most + 0x00010001u) & 0x80008000u)) run_slowly(from, offset, to);
  }

 private:
  __device__ __forceinline__ int natural(int chunk) const { return chunk * 128 - lane % 4 * 124; }

  // 0 from 32 on, also where `by` went below 0.
  static __device__ __forceinline__ uint32_t shifted(uint32_t x, uint32_t by) { return __funnelshift_lc(0, x, by); }

  __device__ __forceinline__ void run_slowly(uint32_t from, uint32_t offset, unsigned char* to) const {
    __syncwarp();
    from -= (lane / 8 + 1) / 2 * 16;
    to += lane % 8 * 16 - part();
#pragma unroll 1
    for (int word = lane / 8; word < C::v_chunks * 4; word += 4) {
      const int chunk = word / 4, t = word % 4;
      uint32_t pair = 0;
#pragma unroll 1
      for (int e = 0; e < 2; ++e) {
        if (word * 2 + e < head_dim) {
          pair |= static_cast<uint32_t>(*static_cast<const uint16_t*>(
                      __cvta_shared_to_generic(from + offset + word * 4 + e * 2))) << e * 16;
        }
      }
      const int at = chunk < permuted ? (chunk / 4 * 4 + t) * 128 + chunk % 4 * 4 : chunk * 128 + t * 4;
      *reinterpret_cast<uint32_t*>(to + at) = pair;
    }
    __syncwarp();
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
