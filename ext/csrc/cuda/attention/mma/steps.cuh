// The steps of a warp on the registers of its rows: masks, online softmax, product with V, and the store. S and P are
// 8-wide tiles s[row tile][column tile][element] as mma.sync leaves them.
//
// Some small arguments are passed by reference: by value, the compiler orders the instructions otherwise.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../../../kernels.h"
#include "../../numeric.cuh"
#include "../../ptx/ex2.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/special_registers.cuh"
#include "../span.cuh"
#include "config.cuh"
#include "copy.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

constexpr float kSlack = 8.0f;  // weights up to 2^8 fit float16 and lose nothing in float32 sums

// The tile of a thread block.
struct Plan {
  int k_offset, v_offset, out_offset;  // elements
  int block_row, blocks;
  // varlen alone. Keys are counted from the first one that is copied; row r sees those from r + low to before r + high.
  int seq_q, seq_kv, low, high, lse_offset;
};

template <typename C>
using Scores = float[C::row_tiles][C::score_tiles][4];
template <typename C>
using Outputs = float[C::row_tiles][C::out_tiles][4];

// Masks the scores of a key block. Only blocks at the end of the keys or on the diagonal hold hidden pairs. varlen:
// also multiplies by the scale.
template <typename C>
__device__ __forceinline__ void mask_scores(Scores<C>& s, const Parameters& p, const volatile Plan& plan,
                                            const int& first_key) {
  constexpr int row_tiles = C::row_tiles, columns = C::score_tiles;
  const int warp_row = plan.block_row + ptx::fresh_tid_x() / 32 * C::warp_rows;
  if constexpr (C::varlen) {
    const int lane = ptx::fresh_tid_x() % 32;
    const bool some_hidden = first_key + C::block_n > min(plan.seq_kv, warp_row + plan.high) ||
                             first_key < warp_row + C::warp_rows - 1 + plan.low;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp_row + i * 16 + h * 8 + lane / 4;
        const int first = first_key + lane % 4 * 2;
        const int begin = some_hidden ? row + plan.low - first : 0;
        const int limit = some_hidden ? min(plan.seq_kv, row + plan.high) - first : C::block_n;
#pragma unroll
        for (int n = 0; n < columns; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const bool hidden = n * 8 + e >= limit || n * 8 + e < begin;
            s[i][n][2 * h + e] = hidden ? -INFINITY : s[i][n][2 * h + e] * p.scale_log2;
          }
        }
      }
    }
  } else if (first_key + C::block_n > p.seq_kv || (p.causal && first_key + C::block_n - 1 > warp_row)) {
    const int lane = ptx::fresh_tid_x() % 32;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp_row + i * 16 + h * 8 + lane / 4;
        const int limit = (p.causal ? min(p.seq_kv, row + 1) : p.seq_kv) - first_key - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < columns; ++n) {
          if (n * 8 >= limit) s[i][n][2 * h] = -INFINITY;
          if (n * 8 + 1 >= limit) s[i][n][2 * h + 1] = -INFINITY;
        }
      }
    }
  }
}

// Turns scores into weights, and rescales the outputs if a row's maximum grew. fetch_sums() reads `sum` from where it
// is kept.
template <typename C, typename FetchSums>
__device__ __forceinline__ void take_weights(Scores<C>& s, Outputs<C>& o, float (&base)[C::row_tiles][2],
                                             float (&sum)[C::row_tiles][2], const Parameters& p,
                                             const FetchSums& fetch_sums) {
  constexpr int row_tiles = C::row_tiles, columns = C::score_tiles, out_tiles = C::out_tiles;
  // Online softmax: scores stay unscaled, the scale is folded into the argument of exp2. What is subtracted there need
  // not be the maximum so far, only near it: while no score of the warp exceeds it by more than a factor of 2^8, all
  // stays as it is, and maximum, shuffles and the rescaling of O are saved (the idea is FlashAttention-4's).
  float top[row_tiles][2];
  bool grows = false;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float t = fmaxf(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < columns; ++n) t = fmaxf(t, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
      top[i][h] = C::varlen ? t : t * p.scale_log2;
      grows |= !(top[i][h] - base[i][h] <= kSlack);  // true for NaN
    }
  }
  fetch_sums();
  if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float t = top[i][h];
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        t = fmaxf(t, base[i][h]);
        // Where every score so far is -inf, subtracting that would make NaN of a factor that does not matter.
        const float shrink = t == -INFINITY ? 1.0f : cuda_llm_ops::ptx::ex2(base[i][h] - t);
        base[i][h] = t;
        sum[i][h] *= shrink;
#pragma unroll
        for (int n = 0; n < out_tiles; ++n) {
          o[i][n][2 * h] *= shrink;
          o[i][n][2 * h + 1] *= shrink;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float subtracted = base[i][h] == -INFINITY ? 0.0f : base[i][h];  // -inf - -inf is NaN, the weights are 0
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[i][n][e] = cuda_llm_ops::ptx::ex2(C::varlen ? s[i][n][e] - subtracted
                                                        : __fmaf_rn(s[i][n][e], p.scale_log2, -subtracted));
          sum[i][h] += s[i][n][e];
        }
      }
    }
  }
}

// O += P V, of the K and V block at the shared address `keys`.
template <typename C>
__device__ __forceinline__ void multiply_values(Outputs<C>& o, const Scores<C>& s, uint32_t keys) {
  using T = typename C::T;
  constexpr int row_tiles = C::row_tiles, out_tiles = C::out_tiles;
  const int value_lane = ptx::fresh_tid_x() % 32;
  const uint32_t narrow_values =
      keys + C::tile_bytes + (value_lane >> 3 & 1) * C::group_bytes + (value_lane & 7) * C::pitch;
  const uint32_t values = narrow_values + value_lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < C::block_n / 16; ++step) {
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* pair_of = &s[i][2 * step + e / 2][e % 2 * 2];
        a[i][e] = pack_pair<T>(pair_of[0], pair_of[1]);
      }
    }
#pragma unroll
    for (int n = 0; n + 1 < out_tiles; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, values + step * 2 * C::group_bytes + n * 16);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        ptx::mma_sync_m16n8k16<T>(o[i][n], a[i], b[0], b[1]);
        ptx::mma_sync_m16n8k16<T>(o[i][n + 1], a[i], b[2], b[3]);
      }
    }
    if constexpr (out_tiles % 2 != 0) {
      uint32_t b[2];
      ptx::ldmatrix_x2_trans(b, narrow_values + step * 2 * C::group_bytes + (out_tiles - 1) * 16);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) ptx::mma_sync_m16n8k16<T>(o[i][out_tiles - 1], a[i], b[0], b[1]);
    }
  }
}

// Writes the warp's rows: O / sum through its own rows of Q in shared memory, then out in whole chunks.
template <typename C, typename Options>
__device__ __forceinline__ void store(const Outputs<C>& o, const float (&base)[C::row_tiles][2],
                                      const float (&sum)[C::row_tiles][2], const Parameters& p,
                                      const volatile Plan& plan, const Options& options, unsigned char* shared,
                                      const int& lane, const int& warp, int rows) {
  using T = typename C::T;
  constexpr int row_tiles = C::row_tiles, out_tiles = C::out_tiles;
  unsigned char* const staged = shared + warp * (C::warp_rows / 8) * C::group_bytes;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[i][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float inverse = total == 0.0f ? 1.0f : __frcp_rn(total);
      if constexpr (C::varlen) {
        const int row = i * 16 + h * 8 + lane / 4;
        if (options.lse != nullptr && lane % 4 == 0 && row < rows) {
          options.lse[plan.lse_offset + warp * C::warp_rows + row] = attention::log_sum_exp(base[i][h], total);
        }
      }
      unsigned char* row = staged + (2 * i + h) * C::group_bytes + lane / 4 * C::pitch + lane % 4 * 4;
#pragma unroll
      for (int n = 0; n < out_tiles; ++n) {
        *reinterpret_cast<uint32_t*>(row + n * 16) =
            pack_pair<T>(o[i][n][2 * h] * inverse, o[i][n][2 * h + 1] * inverse);
      }
    }
  }
  __syncwarp();
  T* out = static_cast<T*>(p.out) + (plan.out_offset + warp * C::warp_rows * p.out_stride.seq);
  if (p.out_aligned) {
    const int chunks = p.head_dim / 8;
    for (int index = lane; index < rows * C::chunks; index += 32) {
      const int row = index / C::chunks;
      const int chunk = index % C::chunks;
      if (chunk < chunks) {
        *reinterpret_cast<uint4*>(out + row * p.out_stride.seq + chunk * 8) =
            *reinterpret_cast<const uint4*>(staged + row_offset(row, C::group_bytes, C::pitch) + chunk * 16);
      }
    }
  } else {
    for (int row = 0; row < rows; ++row) {
      const T* from = reinterpret_cast<const T*>(staged + row_offset(row, C::group_bytes, C::pitch));
      for (int column = lane; column < p.head_dim; column += 32) out[row * p.out_stride.seq + column] = from[column];
    }
  }
}

}  // namespace cuda_llm_ops::cuda::flash_mma
