// Many rows against an 8-bit cache: the rows of ../mma/wide.cuh, whose left operands are converted in registers. Each
// number of the cache is converted once, whatever the number of rows is.
//
//   keys        ldmatrix gives a lane four columns of a key, 4 t to 4 t + 3 of each 16. The product takes them as its
//               columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, in which order the queries lie in shared memory.
//   values      A transposing ldmatrix gives a lane columns 2 g and 2 g + 1 of two keys: rows g and g + 8 of the
//               product. Each warp has 32 columns, of which it loads all 64 keys.
//
// Scales, queries of bfloat16, and rests: as in rows.cuh. Rests have products of their own, by mma.sync.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../mma/wide.cuh"
#include "mma.h"
#include "numbers.cuh"

namespace cuda_llm_ops::cuda::decode {

// Keys whose values have scales of their own: those of a lane's keys g and g + 8 of a warp's 16.
struct ScaledKeys {
  // As in rows.cuh.
  static constexpr float kLeastNormal = 6.103515625e-05f, kLeastScale = 7.888609052210118e-31f;

  float more[2], inverse[2], sign[2];

  __device__ __forceinline__ explicit ScaledKeys(const float* scales) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float scale = scales[8 * e], found = fabsf(scale);
      const float size = found < kLeastScale ? kLeastScale : found;  // fmaxf would drop NaN
      more[e] = __log2f(size);
      inverse[e] = __fdividef(1.0f, size);
      sign[e] = found < kLeastScale ? 0.0f : copysignf(1.0f, scale);
    }
  }
  __device__ __forceinline__ float signed_weight(int e, float weight) const { return weight * sign[e]; }

  // Rounding a product below the normal numbers says nothing about the weight. A key that is not seen has none,
  // whatever its scales are.
  __device__ __forceinline__ float weight(int e, float rounded, float power) const {
    const float exact = power == -INFINITY ? 0.0f : ptx::ex2(power - more[e]);
    return fabsf(rounded) >= kLeastNormal ? fabsf(rounded) * inverse[e] : exact;
  }
};

template <typename Out_, typename Number_, int HeadDim, int Warps, int TileRows>
struct WideRows<Cached<Out_, Number_>, HeadDim, Warps, TileRows>
    : WideState<Cached<Out_, Number_>, __half, HeadDim, Warps, TileRows, false, kRests<Out_>> {
  using State = WideState<Cached<Out_, Number_>, __half, HeadDim, Warps, TileRows, false, kRests<Out_>>;
  using State::scores, State::tiles, State::rows_of_lane, State::chunk_offset;
  using State::State, State::o, State::p, State::shared_q, State::turn, State::warp, State::lane, State::head;
  using Out = Out_;
  using Number = Number_;

  static constexpr int block_keys = Warps * 16, chunks = HeadDim / 16;
  static constexpr bool overlaps = false;  // registers that products read may not change while others run
  static constexpr bool normalises = !std::is_same_v<Out, __half>;
  static_assert(HeadDim == 128);

  float factor;                          // of scores, in log2; of normalised rows without their powers
  uint32_t b[tiles][kWideKeys / 16][4];  // the values that are being multiplied

  __device__ __forceinline__ const QuantisedParameters& parameters() const {
    return static_cast<const QuantisedParameters&>(p);
  }
  // Of each row, behind the tile of queries: the power of two that was taken out of it. Then the scale of all values.
  __device__ __forceinline__ float* powers() const {
    return reinterpret_cast<float*>(shared_q + query_bytes(HeadDim, TileRows));
  }

  // Of the unit that was taken, for which the state is cleared.
  __device__ __forceinline__ void load_queries() {
    const QuantisedParameters& all = parameters();
    const bool of_head = all.k_scale != nullptr && all.token_scales == 0;
    const float k_scale = of_head ? __ldcg(all.k_scale + head * all.k_scale_stride.head) : 1.0f;
    if (warp == 0 && lane == 0) {
      powers()[TileRows] = of_head ? __ldcg(all.v_scale + head * all.v_scale_stride.head) : 1.0f;
    }
    share_float16();
    factor = p.scale_log2 * k_scale;
    State::clear();
  }

  // Brings the queries into shared memory as float16, the columns of each 16 in the keys' order.
  __device__ __forceinline__ void share_float16() {
    constexpr int row_chunks = State::query_chunks;
    static_assert(TileRows * row_chunks % (Warps * 32) == 0 && row_chunks <= 32);
#pragma unroll
    for (int i = 0; i < State::query_loads; ++i) {
      const int index = i * Warps * 32 + warp * 32 + lane, row = index / row_chunks, chunk = index % row_chunks;
      uint4 eight = make_uint4(0u, 0u, 0u, 0u);
      if (State::queries[i] != nullptr) eight = *reinterpret_cast<const uint4*>(State::queries[i]);
      uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
      if constexpr (normalises) {
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
      // Of 16 columns, pairs 0, 2, 4, 6 come first, then pairs 1, 3, 5, 7.
      uint8_t* const to = shared_q + chunk / 8 * (TileRows * 128) + chunk % 2 * 8;
      const int sixteen = chunk % 8 / 2 * 2;
      *reinterpret_cast<uint2*>(to + chunk_offset(row, sixteen)) = make_uint2(pairs[0], pairs[2]);
      *reinterpret_cast<uint2*>(to + chunk_offset(row, sixteen + 1)) = make_uint2(pairs[1], pairs[3]);
    }
    ptx::fence_proxy_async_shared();
    State::meet();
  }

  // As in ../mma/wide.cuh. `scales`: of the tile's keys; of its values, block_keys behind them; both only where tokens
  // have scales. Returns bits that depend on everything that was loaded.
  template <bool Whole, typename Settle>
  __device__ __forceinline__ uint32_t tile(uint32_t keys, uint32_t values, uint32_t, const float* scales, int left,
                                           const Settle&) {
    const int of_warp = State::warp_of_group();
    uint32_t a[chunks][4], loaded = 0;
    const uint32_t k_lane = keys + chunk_offset(of_warp * 16 + lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < chunks / 2; ++i) {
      uint32_t raw[4], both[4][2];
      ptx::ldmatrix_x4(raw, k_lane ^ (i * 32));
#pragma unroll
      for (int r = 0; r < 4; ++r) Number::in_order(both[r], raw[r]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[2 * i + h][0] = both[2 * h][0], a[2 * i + h][1] = both[2 * h + 1][0];
        a[2 * i + h][2] = both[2 * h][1], a[2 * i + h][3] = both[2 * h + 1][1];
      }
    }
    float s[scores] = {};
    ptx::wgmma_fence_operand(s);
#pragma unroll
    for (int i = 0; i < chunks; ++i) ptx::wgmma_fence_operand(a[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const uint64_t of_queries =
          ptx::k_major_descriptor(ptx::shared_address(shared_q) + i / 4 * (TileRows * 128)) + i % 4 * 2;
      ptx::Wgmma<TileRows>::template rs<__half, 0>(s, a[i], of_queries, i > 0);
    }
    ptx::wgmma_commit_group();
    uint32_t raw_values[kWideKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kWideKeys / 16; ++i) {
      ptx::ldmatrix_x4_trans(raw_values[i], values + chunk_offset(i * 16 + lane % 16, of_warp * 2 + lane / 16));
      loaded = raw_values[i][0];  // loads from shared memory come back in order
    }
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(s);
#pragma unroll
    for (int i = 0; i < chunks; ++i) ptx::wgmma_fence_operand(a[i]);
#pragma unroll
    for (int i = 0; i < kWideKeys / 16; ++i) {
      uint32_t both[4][2];
#pragma unroll
      for (int r = 0; r < 4; ++r) Number::interleaved(both[r], raw_values[i][r]);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        b[m][i][0] = both[2 * m][0], b[m][i][1] = both[2 * m][1];
        b[m][i][2] = both[2 * m + 1][0], b[m][i][3] = both[2 * m + 1][1];
      }
    }
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
      // Read again for each tile, because registers are few.
      const float of_row = normalises ? factor * powers()[State::row_of(i)] : factor;
#pragma unroll
      for (int e = 0; e < 2; ++e) s[i / 2 * 4 + 2 * e + i % 2] *= of_row;
    }
    typename State::Packed packed;
    if (parameters().token_scales != 0) {
      const float* const mine = scales + of_warp * 16 + lane / 4;
      const ScaledKeys of_values(mine + block_keys);
#pragma unroll
      for (int e = 0; e < scores; ++e) s[e] = s[e] * mine[e / 2 % 2 * 8] + of_values.more[e / 2 % 2];
      if constexpr (!Whole) State::hide(s, left);
      State::weigh(s, of_values, packed);
      State::add_weights(s, of_values, packed);
    } else {
      if constexpr (!Whole) State::hide(s, left);
      State::weigh(s, PlainKeys{}, packed);
      State::add_weights(s, PlainKeys{}, packed);
    }
    if constexpr (State::parts == 2) add_rests();
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      ptx::wgmma_fence_operand(o[m]);
#pragma unroll
      for (int i = 0; i < kWideKeys / 16; ++i) ptx::wgmma_fence_operand(b[m][i]);
    }
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kWideKeys / 16; ++i) {
      const uint64_t of_weights = State::weights_descriptor(i);
#pragma unroll
      for (int m = 0; m < tiles; ++m) ptx::Wgmma<TileRows>::template rs<__half, 0>(o[m], b[m][i], of_weights, 1);
    }
    ptx::wgmma_commit_group();
    turn ^= 1;
    return loaded;
  }

  // The products of the rests, by mma.sync, whose fragments are those of wgmma: from registers, the left operand costs
  // wgmma 32 clocks more than so few rows need.
  __device__ __forceinline__ void add_rests() {
    const uint32_t rests =
        State::weights_at() + State::weights_bytes + chunk_offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < kWideKeys / 16; ++i) {
#pragma unroll
      for (int j = 0; j < TileRows / 8; j += 2) {
        uint32_t of_rows[4];
        ptx::ldmatrix_x4(of_rows, (rests + j * 1024) ^ (i * 32));
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float sums[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[e] = o[m][4 * (j + h) + e];
            ptx::mma_sync_m16n8k16<__half>(sums, b[m][i], of_rows[2 * h], of_rows[2 * h + 1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) o[m][4 * (j + h) + e] = sums[e];
          }
        }
      }
    }
  }

  // Waits for all products.
  __device__ __forceinline__ void end_products() {
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      ptx::wgmma_fence_operand(o[m]);
#pragma unroll
      for (int i = 0; i < kWideKeys / 16; ++i) ptx::wgmma_fence_operand(b[m][i]);
    }
  }

  // For the rows' stores: the warpgroups' sums, added.
  __device__ __forceinline__ void store_sums() {
    const int first = State::warp_of_group() * 32 + lane / 4 * 2;
    State::add_groups([first](int m, int e) { return first + 16 * m + e; }, powers()[TileRows]);
  }
};

}  // namespace cuda_llm_ops::cuda::decode
