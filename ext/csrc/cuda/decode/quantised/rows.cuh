// One warp's rows against an 8-bit cache: queries, scores, weights, sums.
//
// The products are those of ../mma/rows_8.cuh: keys x rows and columns x rows, eight rows a product. Their left operand
// is the cache. ldmatrix moves 16-bit elements, which are two 8-bit numbers here; what the two mean follows from the
// order in which both operands of a product list the dimension that is summed, or the rows of the result:
//
//   keys        A lane gets four columns of a key, 4 t to 4 t + 3 of each 16. The product takes them as its columns 2 t,
//               2 t + 1, 2 t + 8 and 2 t + 9. The queries are laid out in the same order.
//   values      A transposing ldmatrix gives a lane columns 2 g and 2 g + 1 of two keys. They are rows g and g + 8 of
//               the product. So a lane's sums are those of two neighbouring columns.
//
// Everything is computed in float16 with float32 sums, also where queries are bfloat16: a row of queries is multiplied
// by a power of two that brings its largest element to 1 to 2, and its scores by the inverse. Numbers of a cache are
// exact in float16.
//
//   rests       Rounding a weight to float16 costs as much as rounding a result to float16 does. So what it leaves is
//               multiplied too, where results are float16. Up to four rows need no product more: column 2 t of a product
//               has a row's weights, column 2 t + 1 their rests, and the sums of both are added at the end. More rows
//               have two products.
//
//   scales      A key's scale multiplies its scores. A value's scale s multiplies the weight w of its key before the
//               weight is rounded: the row keeps the largest log2(w s), as it otherwise keeps the largest log2(w). The
//               sum of weights gets w. One scale for the whole head multiplies the sums at the end instead.
#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/movmatrix.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/special_registers.cuh"
#include "../mma/columns.cuh"
#include "../mma/rows.cuh"
#include "mma.h"
#include "numbers.cuh"

namespace cuda_llm_ops::cuda::decode {

template <typename T, int HeadDim, int Warps, int Groups, int TileRows>
struct QuantisedRows : RowsBase<T, HeadDim, Warps, Groups, TileRows> {
  using Base = RowsBase<T, HeadDim, Warps, Groups, TileRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::shared_q, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count, Base::head;
  using Out = typename T::Out;
  using Number = typename T::Number;

  static constexpr bool normalises = !std::is_same_v<Out, __half>;
  static constexpr bool beside = TileRows == kFewestRows;  // rests are the columns beside the weights
  static constexpr bool twice = kRests<Out> && !beside;    // rests have products of their own
  static constexpr int eights = beside ? 1 : TileRows / 8, chunks = HeadDim / 16, halves = kWarpKeys / 16;
  static constexpr int own = beside ? 1 : 2;          // rows of a lane, of eight columns
  static constexpr int chains = eights == 1 ? 2 : 1;  // of products that wait for each other, for a half and eight rows
  static constexpr int block_keys = Warps * kWarpKeys;
  // Where registers are left: queries stay in them, and values are loaded before the weights are known.
  static constexpr bool early_values = eights == 1;
  static constexpr int kept_chunks = eights > 1 ? 0 : twice ? chunks - 2 : chunks;

  // As in rows_8.cuh.
  static constexpr float kHeadroom = 8.0f;
  static constexpr float kLeastNormal = 6.103515625e-05f;       // of float16
  static constexpr float kLeastScale = 7.888609052210118e-31f;  // 2^-100; below, a value's scale counts as 0 or as this

  uint2 q[eights][kept_chunks > 0 ? kept_chunks : 1];
  float o[eights][chunks][4];  // columns 16 i + 2 g (two) and the next (two), rows 2 t and the next (or their rests)
  float base[eights][own], sum[eights][own];
  float factor[eights][own];  // of scores, in log2
  float value_scale;          // of the unit's sums, until store_sums() has used it

  __device__ __forceinline__ const QuantisedParameters& parameters() const {
    return static_cast<const QuantisedParameters&>(p);
  }
  __device__ __forceinline__ int row_of(int eight, int h) const { return eight * 8 + lane % 4 * own + h; }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    const QuantisedParameters& all = parameters();
    const bool of_head = all.k_scale != nullptr && all.token_scales == 0;
    const float k_scale = of_head ? __ldcg(all.k_scale + head * all.k_scale_stride.head) : 1.0f;
    value_scale = of_head ? __ldcg(all.v_scale + head * all.v_scale_stride.head) : 1.0f;
    share_float16();
#pragma unroll
    for (int n = 0; n < eights; ++n) {
#pragma unroll
      for (int i = 0; i < kept_chunks; ++i) q[n][i] = shared_query(n, i);
#pragma unroll
      for (int h = 0; h < own; ++h) {
        factor[n][h] = p.scale_log2 * k_scale * (normalises ? powers()[row_of(n, h)] : 1.0f);
        base[n][h] = -FLT_MAX;
        sum[n][h] = 0.0f;
      }
#pragma unroll
      for (int i = 0; i < chunks; ++i) o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0.0f;
    }
  }

  // Of each row, behind the tile of queries: the power of two that was taken out of it.
  __device__ __forceinline__ float* powers() const {
    return reinterpret_cast<float*>(shared_q + query_bytes(HeadDim, TileRows));
  }

  // The right operand of a product: four columns of a row, in the order of the keys' columns.
  __device__ __forceinline__ uint2 shared_query(int eight, int i) const {
    return *reinterpret_cast<const uint2*>(shared_q + i / 4 * (TileRows * 128) + eight * 1024 +
                                           chunk_offset(beside ? lane / 8 : lane / 4, i % 4 * 2 + lane % 4 / 2) +
                                           lane % 2 * 8);
  }
  __device__ __forceinline__ uint2 query(int eight, int i) const {
    return i < kept_chunks ? q[eight][i < kept_chunks ? i : 0] : shared_query(eight, i);
  }

  // share_queries() of the other kernels, which also makes float16 of them.
  __device__ __forceinline__ void share_float16() {
    constexpr int row_chunks = Base::query_chunks;
    static_assert((TileRows * row_chunks % (Warps * 32) == 0 || TileRows % Warps == 0) && row_chunks <= 32);
#pragma unroll
    for (int i = 0; i < Base::query_loads; ++i) {
      // Opaque: what follows from it would stay in registers from unit to unit.
      const int plain = i * Warps * 32 + warp * 32 + lane, index = twice ? ptx::opaque(plain) : plain;
      const int row = index / row_chunks, chunk = index % row_chunks;
      if (TileRows * row_chunks < Warps * 32 && row >= TileRows) break;  // whole warps
      uint4 eight = make_uint4(0u, 0u, 0u, 0u);
      if (Base::queries[i] != nullptr) eight = *reinterpret_cast<const uint4*>(Base::queries[i]);
      if constexpr (normalises) {
        uint32_t* const pairs = reinterpret_cast<uint32_t*>(&eight);
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 pair = unpack_pair<Out>(pairs[j]);
          most = fmaxf(most, fmaxf(fabsf(pair.x), fabsf(pair.y)));
        }
#pragma unroll
        for (int step = row_chunks / 2; step > 0; step /= 2) {
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
        }
        const uint32_t exponent = min(max(__float_as_uint(most) >> 23, 1u), 253u);
        const float shrink = __uint_as_float((254u - exponent) << 23);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 pair = unpack_pair<Out>(pairs[j]);
          pairs[j] = ptx::cvt_rn_x2<__half>(pair.x * shrink, pair.y * shrink);
        }
        if (chunk == 0) powers()[row] = __uint_as_float(exponent << 23);
      }
      *reinterpret_cast<uint4*>(shared_q + chunk / 8 * (TileRows * 128) + chunk_offset(row, chunk % 8)) = eight;
    }
    Base::meet();
  }

  // A tile of 32 keys, `left` of them (and more behind it) within the length. `keys` and `values` are the shared
  // addresses of its first row in the first panel; panels lie panel_bytes apart, and the second 16 keys half_bytes
  // behind the first. `scales`: of its keys; of its values, block_keys behind them; both only where tokens have scales.
  // All rows see all keys of a whole tile. Returns bits that depend on everything that was loaded.
  template <bool Whole>
  __device__ __forceinline__ uint32_t tile(uint32_t keys, uint32_t values, uint32_t panel_bytes, uint32_t half_bytes,
                                           const float* scales, int left) {
    const uint32_t place = chunk_offset(lane % 16, lane / 16);
    float s[halves][eights][chains][4] = {};
#pragma unroll
    for (int i = 0; i < chunks / 2; ++i) {
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        uint32_t raw[4], wide[4][2];
        ptx::ldmatrix_x4(raw, (keys + half * half_bytes + place + i / 4 * panel_bytes) ^ (i % 4 * 32));
#pragma unroll
        for (int r = 0; r < 4; ++r) Number::in_order(wide[r], raw[r]);
        const uint32_t first[4] = {wide[0][0], wide[1][0], wide[0][1], wide[1][1]};
        const uint32_t second[4] = {wide[2][0], wide[3][0], wide[2][1], wide[3][1]};
#pragma unroll
        for (int n = 0; n < eights; ++n) {
          const uint2 even = query(n, 2 * i), odd = query(n, 2 * i + 1);
          ptx::mma_sync_m16n8k16<__half>(s[half][n][0], first, even.x, even.y);
          ptx::mma_sync_m16n8k16<__half>(s[half][n][chains - 1], second, odd.x, odd.y);
        }
      }
    }
    uint32_t raw[halves][chunks / 2][4];
    const auto load_values = [&](int half, int i) {
      ptx::ldmatrix_x4_trans(raw[half][i], (values + half * half_bytes + place + i / 4 * panel_bytes) ^ (i % 4 * 32));
    };
    if constexpr (early_values) {
#pragma unroll
      for (int half = 0; half < halves; ++half) {
#pragma unroll
        for (int i = 0; i < chunks / 2; ++i) load_values(half, i);
      }
    }
    float score[halves][eights][2][own];
#pragma unroll
    for (int half = 0; half < halves; ++half) {
#pragma unroll
      for (int n = 0; n < eights; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int h = 0; h < own; ++h) {
            float products = s[half][n][0][2 * e + h];
            if (chains > 1) products += s[half][n][chains - 1][2 * e + h];
            score[half][n][e][h] = products * factor[n][h];
          }
        }
      }
    }
    const auto hide = [&](int half, int n, int e, int h) {
      if constexpr (!Whole) {
        const int seen = left - Base::keys_behind(row_of(n, h));
        if (half * 16 + e * 8 + lane / 4 >= seen) score[half][n][e][h] = -INFINITY;
      }
    };
    uint32_t weights[halves][eights][2], rests[halves][eights][2];
    if (parameters().token_scales != 0) {
      weigh<true>(score, scales, hide, weights, rests);
    } else {
      weigh<false>(score, scales, hide, weights, rests);
    }
    uint32_t loaded = 0;
#pragma unroll
    for (int half = 0; half < halves; ++half) {
#pragma unroll
      for (int i = 0; i < chunks / 2; ++i) {
        if constexpr (!early_values) load_values(half, i);
        uint32_t wide[4][2];
#pragma unroll
        for (int r = 0; r < 4; ++r) Number::interleaved(wide[r], raw[half][i][r]);
        const uint32_t first[4] = {wide[0][0], wide[0][1], wide[1][0], wide[1][1]};
        const uint32_t second[4] = {wide[2][0], wide[2][1], wide[3][0], wide[3][1]};
#pragma unroll
        for (int n = 0; n < eights; ++n) {
          ptx::mma_sync_m16n8k16<__half>(o[n][2 * i], first, weights[half][n][0], weights[half][n][1]);
          ptx::mma_sync_m16n8k16<__half>(o[n][2 * i + 1], second, weights[half][n][0], weights[half][n][1]);
          if constexpr (twice) {
            ptx::mma_sync_m16n8k16<__half>(o[n][2 * i], first, rests[half][n][0], rests[half][n][1]);
            ptx::mma_sync_m16n8k16<__half>(o[n][2 * i + 1], second, rests[half][n][0], rests[half][n][1]);
          }
        }
        loaded |= raw[half][i][0];
      }
    }
    return loaded;
  }

  // Scores of 32 keys, in units of log2, become weights, packed as the right operand of the product with the values.
  // As in rows_8.cuh, weights are powers of a score that was the largest of an earlier tile.
  template <bool Token, typename Hide>
  __device__ __forceinline__ void weigh(float (&score)[halves][eights][2][own], const float* scales, const Hide& hide,
                                        uint32_t (&weights)[halves][eights][2], uint32_t (&rests)[halves][eights][2]) {
    // The size of the scale of a value of key g or g + 8. It is read twice, because registers are few.
    const auto size_of = [&](int half, int e) {
      const float size = fabsf(scales[block_keys + half * 16 + e * 8 + lane / 4]);
      return size < kLeastScale ? kLeastScale : size;  // fmaxf would drop NaN
    };
    if constexpr (Token) {
#pragma unroll
      for (int half = 0; half < halves; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float k_scale = scales[half * 16 + e * 8 + lane / 4], more = __log2f(size_of(half, e));
#pragma unroll
          for (int n = 0; n < eights; ++n) {
#pragma unroll
            for (int h = 0; h < own; ++h) {
              float& one = score[half][n][e][h];
              one = one * k_scale + more;
            }
          }
        }
      }
    }
    bool higher = false;
#pragma unroll
    for (int half = 0; half < halves; ++half) {
#pragma unroll
      for (int n = 0; n < eights; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int h = 0; h < own; ++h) {
            hide(half, n, e, h);
            higher |= score[half][n][e][h] - base[n][h] > kHeadroom;
          }
        }
      }
    }
    if (__any_sync(kAllLanes, higher)) {
#pragma unroll
      for (int n = 0; n < eights; ++n) {
#pragma unroll
        for (int h = 0; h < own; ++h) {
          // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
          float top = base[n][h];
#pragma unroll
          for (int half = 0; half < halves; ++half) top = fmaxf(top, fmaxf(score[half][n][0][h], score[half][n][1][h]));
#pragma unroll
          for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
          const float shrink = ptx::ex2(base[n][h] - top);
          base[n][h] = top;
          sum[n][h] *= shrink;
#pragma unroll
          for (int i = 0; i < chunks; ++i) {
            o[n][i][h] *= shrink, o[n][i][2 + h] *= shrink;
            if (beside) o[n][i][1] *= shrink, o[n][i][3] *= shrink;
          }
        }
      }
    }
#pragma unroll
    for (int half = 0; half < halves; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float inverse = 1.0f, more = 0.0f, sign = 1.0f;
        if constexpr (Token) {
          const float size = size_of(half, e), scale = scales[block_keys + half * 16 + e * 8 + lane / 4];
          inverse = __fdividef(1.0f, size);
          more = __log2f(size);
          sign = fabsf(scale) < kLeastScale ? 0.0f : copysignf(1.0f, scale);
        }
#pragma unroll
        for (int n = 0; n < eights; ++n) {
          float power[own];
#pragma unroll
          for (int h = 0; h < own; ++h) {
            power[h] = ptx::ex2(score[half][n][e][h] - base[n][h]);
            if (Token) power[h] *= sign;
          }
          uint32_t pair = ptx::cvt_rn_x2<__half>(power[0], power[own - 1]);
          const float2 rounded = unpack_pair<__half>(pair);
          if constexpr (beside) {
            pair = ptx::cvt_rn_x2<__half>(power[0], power[0] - rounded.x);
          } else if constexpr (twice) {
            rests[half][n][e] =
                ptx::movmatrix_trans(ptx::cvt_rn_x2<__half>(power[0] - rounded.x, power[1] - rounded.y));
          }
#pragma unroll
          for (int h = 0; h < own; ++h) {
            // The sum of the weights as they are multiplied: where one key has nearly all the weight, its rounding
            // cancels. With their rests they are multiplied as they were.
            float weight = beside || twice ? power[h] : h == 0 ? rounded.x : rounded.y;
            if constexpr (Token) {
              // Rounding a product below the normal numbers says nothing about the weight. A key that is not seen has
              // none, whatever its scales are.
              const float one = score[half][n][e][h];
              const float exact = one == -INFINITY ? 0.0f : ptx::ex2(one - more - base[n][h]);
              weight = fabsf(weight) >= kLeastNormal ? fabsf(weight) * inverse : exact;
            }
            sum[n][h] += weight;
          }
          weights[half][n][e] = ptx::movmatrix_trans(pair);
        }
      }
    }
  }

  // Of the row `h` of the first eight: Worker hands them back to store_sums(), which knows them all.
  __device__ __forceinline__ float top(int h) const { return base[0][beside ? 0 : h]; }

  // What the products gave a row in columns 16 i + 2 g (two).
  __device__ __forceinline__ float2 sums_of(int n, int h, int i) const {
    const float (&all)[4] = o[n][i];
    return beside ? make_float2(all[0] + all[1], all[2] + all[3]) : make_float2(all[h], all[2 + h]);
  }

  // The warp's sums, for the others to read.
  __device__ __forceinline__ void store_sums(int slot, const float (&)[2]) {
#pragma unroll
    for (int n = 0; n < eights; ++n) {
#pragma unroll
      for (int h = 0; h < own; ++h) {
        float total = sum[n][h];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
        const int row = row_of(n, h);
        if (row < row_count) {
          float* const to = merge + (slot * p.rows + row) * pitch + lane / 4 * 2;
#pragma unroll
          for (int i = 0; i < chunks; ++i) {
            const float2 sums = sums_of(n, h, i);
            *reinterpret_cast<float2*>(to + 16 * i) = make_float2(sums.x * value_scale, sums.y * value_scale);
          }
          if (lane / 4 == 0) merge_stats[slot * kRows + row] = make_float2(base[n][h], total);
        }
      }
    }
  }

  // Adds what another warp stored. Each lane reads what the same lane of the other wrote.
  __device__ __forceinline__ void add_sums(int slot, float (&)[2]) {
#pragma unroll
    for (int n = 0; n < eights; ++n) {
#pragma unroll
      for (int h = 0; h < own; ++h) {
        const int row = row_of(n, h);
        if (row < row_count) {
          const float2 stats = merge_stats[slot * kRows + row];
          const float* const from = merge + (slot * p.rows + row) * pitch + lane / 4 * 2;
          const float common = fmaxf(base[n][h], stats.x);
          const float mine = part_weight(base[n][h], common), other = part_weight(stats.x, common);
          sum[n][h] = sum[n][h] * mine + (lane / 4 == 0 ? stats.y * other : 0.0f);
          base[n][h] = common;
#pragma unroll
          for (int i = 0; i < chunks; ++i) {
            const float2 part = *reinterpret_cast<const float2*>(from + 16 * i), sums = sums_of(n, h, i);
            o[n][i][h] = sums.x * value_scale * mine + part.x * other;
            o[n][i][2 + h] = sums.y * value_scale * mine + part.y * other;
            if (beside) o[n][i][1] = o[n][i][3] = 0.0f;
          }
        }
      }
    }
    value_scale = 1.0f;
    __syncwarp();
  }
};

template <typename Out, typename Number, int HeadDim, int Warps, int Groups>
struct Rows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewestRows>
    : QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewestRows> {
  using QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewestRows>::QuantisedRows;
};

template <typename Out, typename Number, int HeadDim, int Warps, int Groups>
struct Rows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewRows>
    : QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewRows> {
  using QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kFewRows>::QuantisedRows;
};

template <typename Out, typename Number, int HeadDim, int Warps, int Groups>
struct Rows<Cached<Out, Number>, HeadDim, Warps, Groups, kRows>
    : QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kRows> {
  using QuantisedRows<Cached<Out, Number>, HeadDim, Warps, Groups, kRows>::QuantisedRows;
};

}  // namespace cuda_llm_ops::cuda::decode
