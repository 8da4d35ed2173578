// Many rows: warpgroups compute them together, by wgmma, so that keys and values are read once for up to 64 rows. The
// products are those of rows_8.cuh: keys x rows, and columns x rows. So few rows leave no half of a product empty, and
// a tile of keys has one row of sums for each column, whatever the number of rows is.
//
//   warpgroup   Takes a part of the rows, and all 64 keys of each block; or, where the cache must be converted, all rows
//               and 64 keys of each block, its number times 64 from the block's first. It has a softmax of its own.
//   warp        Has the scores of 16 of them. The weights go to shared memory, since each warp multiplies those of all
//               64 keys by its own columns of the values.
//   base        As in rows_8.cuh, weights are powers of a score that was the largest of an earlier tile. It is the
//               warpgroup's. The barrier behind the weights also tells whether some score is larger by the headroom;
//               only then all warps find out the largest, and store their weights again.
//   twice       There is room for the weights of two tiles. A warp that meets the others at a tile's barrier has
//               finished its products of the tile before, whose room the next tile then takes.
//   sums        Those of warpgroups that divide the keys are added in shared memory.
#pragma once

#include <cfloat>
#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/stmatrix.cuh"
#include "../../ptx/wgmma.cuh"
#include "columns.cuh"
#include "rows.cuh"

namespace cuda_llm_ops::cuda::decode {

// A warpgroup's state, for any cache. Weight: the element type of weights. SplitsRows: the warpgroups divide the rows.
// Rests: what the rounding of a weight leaves is kept too, behind the tile's weights.
template <typename T, typename Weight, int HeadDim, int Warps, int TileRows, bool SplitsRows, bool Rests>
struct WideState : RowsBase<T, HeadDim, Warps, 1, TileRows> {
  using Base = RowsBase<T, HeadDim, Warps, 1, TileRows>;
  using Base::Base, Base::chunk_offset, Base::pitch, Base::p, Base::merge, Base::merge_stats;
  using Base::warp, Base::lane, Base::row_count, Base::meet;

  static constexpr bool wide = true;
  static constexpr int groups = Warps / 4, tiles = HeadDim / 64;
  static constexpr int group_tile = SplitsRows ? TileRows / groups : TileRows;  // rows of a warpgroup
  static constexpr int rows_of_lane = group_tile / 4, scores = group_tile / 2;
  static constexpr int weights_bytes = group_tile * kWideKeys * 2, parts = Rests ? 2 : 1;
  static constexpr float kHeadroom = 8.0f;  // as in rows_8.cuh
  static_assert(Warps % 4 == 0 && groups <= 2 && group_tile % 16 == 0 && group_tile <= 64 && HeadDim % 64 == 0);

  float o[tiles][scores];  // 4 j + h: of a column, row 8 j + 2 t + h; 4 j + 2 + h: of another column
  float base[rows_of_lane], sum[rows_of_lane];
  uint32_t turn = 0;

  __device__ __forceinline__ int group() const { return groups == 1 ? 0 : warp / 4; }
  __device__ __forceinline__ int warp_of_group() const { return groups == 1 ? warp : warp % 4; }
  // The warpgroup's first row, and its first key in a block.
  __device__ __forceinline__ int first_row() const { return SplitsRows ? group() * group_tile : 0; }
  __device__ __forceinline__ int first_key() const { return SplitsRows ? 0 : group() * kWideKeys; }
  __device__ __forceinline__ int row_of(int i) const { return first_row() + i / 2 * 8 + lane % 4 * 2 + i % 2; }
  __device__ __forceinline__ float* of_warps() const { return reinterpret_cast<float*>(merge_stats + TileRows); }
  __device__ __forceinline__ float* of_groups() const { return of_warps() + Warps * TileRows; }

  // The warps of a warpgroup meet.
  __device__ __forceinline__ void meet_group() const { ptx::bar_sync(2 + group(), 128); }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int e = 0; e < scores; ++e) o[m][e] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) base[i] = -FLT_MAX, sum[i] = 0.0f;
  }

  // Hides the scores of keys behind the length, of which `left` are within it, and of those that a row's query does
  // not see.
  __device__ __forceinline__ void hide(float (&s)[scores], int left) const {
    const int key = warp_of_group() * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
      const int seen = left - Base::keys_behind(row_of(i));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (key + 8 * e >= seen) s[i / 2 * 4 + 2 * e + i % 2] = -INFINITY;
      }
    }
  }

  // The address of the weights of the running tile: a row of 64 keys for each row of queries.
  __device__ __forceinline__ uint32_t weights_at() const {
    return ptx::shared_address(merge) + (group() * 2 + turn) * (parts * weights_bytes);
  }

  // The weights as they are multiplied, packed, and their rests.
  using Packed = uint32_t[parts][scores / 2];

  template <typename Keys>
  __device__ __forceinline__ void store_weights(const float (&s)[scores], const Keys& keys, Packed& packed) const {
#pragma unroll
    for (int j = 0; j < group_tile / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float first = keys.signed_weight(e, ptx::ex2(s[4 * j + 2 * e] - base[2 * j]));
        const float second = keys.signed_weight(e, ptx::ex2(s[4 * j + 2 * e + 1] - base[2 * j + 1]));
        packed[0][2 * j + e] = ptx::cvt_rn_x2<Weight>(first, second);
        if constexpr (Rests) {
          const float2 rounded = unpack_pair<Weight>(packed[0][2 * j + e]);
          packed[1][2 * j + e] = ptx::cvt_rn_x2<Weight>(first - rounded.x, second - rounded.y);
        }
      }
    }
    const uint32_t to = weights_at() + chunk_offset(lane / 16 * 8 + lane % 8, warp_of_group() * 2 + lane / 8 % 2);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const uint32_t (&all)[scores / 2] = packed[part];
#pragma unroll
      for (int j = 0; j < group_tile / 8; j += 2) {
        ptx::stmatrix_x4_trans(to + part * weights_bytes + j * 1024, all[2 * j], all[2 * j + 1], all[2 * j + 2],
                               all[2 * j + 3]);
      }
    }
    ptx::fence_proxy_async_shared();
  }

  // Scores, in units of log2, become weights in shared memory, which all warps of the group may read. `keys` knows what
  // the values' scales do to them.
  template <typename Keys>
  __device__ __forceinline__ void weigh(const float (&s)[scores], const Keys& keys, Packed& packed) {
    bool higher = false;
#pragma unroll
    for (int e = 0; e < scores; ++e) higher |= s[e] - base[e / 4 * 2 + e % 2] > kHeadroom;
    store_weights(s, keys, packed);
    if (ptx::bar_red_or(2 + group(), 128, higher)) {
      raise(s);
      store_weights(s, keys, packed);
      meet_group();
    }
  }

  // Adds the weights as they are multiplied: where one key has nearly all the weight, its rounding cancels.
  template <typename Keys>
  __device__ __forceinline__ void add_weights(const float (&s)[scores], const Keys& keys, const Packed& packed) {
#pragma unroll
    for (int j = 0; j < group_tile / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float2 weights = unpack_pair<Weight>(packed[0][2 * j + e]);
        if constexpr (Rests) {
          const float2 rests = unpack_pair<Weight>(packed[1][2 * j + e]);
          weights.x += rests.x, weights.y += rests.y;
        }
        sum[2 * j] += keys.weight(e, weights.x, s[4 * j + 2 * e] - base[2 * j]);
        sum[2 * j + 1] += keys.weight(e, weights.y, s[4 * j + 2 * e + 1] - base[2 * j + 1]);
      }
    }
  }

  // Makes the largest score of each row the base. Nobody reads of_warps() any more: the last who did met since.
  __device__ __forceinline__ void raise(const float (&s)[scores]) {
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
      // fmaxf drops NaN; the weight of a NaN score is NaN all the same.
      float top = fmaxf(s[i / 2 * 4 + i % 2], s[i / 2 * 4 + 2 + i % 2]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
      if (lane < 4) of_warps()[warp * TileRows + row_of(i)] = top;
    }
    meet_group();
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
      float top = base[i];
#pragma unroll
      for (int w = 0; w < 4; ++w) top = fmaxf(top, of_warps()[(group() * 4 + w) * TileRows + row_of(i)]);
      const float shrink = ptx::ex2(base[i] - top);
      base[i] = top;
      sum[i] *= shrink;
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        o[m][i / 2 * 4 + i % 2] *= shrink;
        o[m][i / 2 * 4 + 2 + i % 2] *= shrink;
      }
    }
  }

  // The products columns x rows of 16 keys after 16 keys have this right operand.
  __device__ __forceinline__ uint64_t weights_descriptor(int sixteen) const {
    return ptx::k_major_descriptor(weights_at()) + sixteen * 2;
  }

  // The warpgroups' sums, added: in `merge` a row for each row, in merge_stats its largest score and sum of weights.
  // visit(m, e) is the place in its row of o[m][4 j + 2 e + h]. `factor` multiplies all sums.
  template <typename Place>
  __device__ __forceinline__ void add_groups(const Place& place, float factor) {
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
      float total = sum[i];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
      if (lane < 4) {
        of_warps()[warp * TileRows + row_of(i)] = total;
        if (warp_of_group() == 0) of_groups()[(SplitsRows ? 0 : group()) * TileRows + row_of(i)] = base[i];
      }
    }
    const auto visit = [&](const auto& change) {
#pragma unroll
      for (int i = 0; i < rows_of_lane; ++i) {
        const int row = row_of(i);
        if (row >= row_count) continue;
        change(row, i);
      }
    };
    meet();  // nobody multiplies weights any more
    if (SplitsRows || group() == groups - 1) {
      visit([&](int row, int i) {
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
#pragma unroll
          for (int e = 0; e < 2; ++e) merge[row * pitch + place(m, e)] = o[m][i / 2 * 4 + 2 * e + i % 2] * factor;
        }
      });
    }
    const int thread = warp * 32 + lane;
    float top = -INFINITY, total = 0.0f;
    if (thread < TileRows) {
#pragma unroll
      for (int g = 0; g < (SplitsRows ? 1 : groups); ++g) top = fmaxf(top, of_groups()[g * TileRows + thread]);
      if constexpr (SplitsRows) {
#pragma unroll
        for (int w = 0; w < 4; ++w) total += of_warps()[(thread / group_tile * 4 + w) * TileRows + thread];
      } else {
#pragma unroll
        for (int w = 0; w < Warps; ++w) {
          total += of_warps()[w * TileRows + thread] * part_weight(of_groups()[w / 4 * TileRows + thread], top);
        }
      }
      merge_stats[thread] = make_float2(top, total);
    }
    if constexpr (groups == 2 && !SplitsRows) {
      meet();
      if (group() == 0) {
        visit([&](int row, int i) {
          const float other = of_groups()[TileRows + row], common = fmaxf(base[i], other);
          const float of_own = part_weight(base[i], common) * factor, of_other = part_weight(other, common);
#pragma unroll
          for (int m = 0; m < tiles; ++m) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float& both = merge[row * pitch + place(m, e)];
              both = both * of_other + o[m][i / 2 * 4 + 2 * e + i % 2] * of_own;
            }
          }
        });
      }
    }
  }
};

// Keys whose values have no scales.
struct PlainKeys {
  __device__ __forceinline__ float signed_weight(int, float weight) const { return weight; }
  __device__ __forceinline__ float weight(int, float rounded, float) const { return rounded; }
};

// Of a 16-bit cache: both operands of every product come from shared memory. The warpgroups divide the rows.
template <typename T, int HeadDim, int Warps, int TileRows>
struct WideRows : WideState<T, T, HeadDim, Warps, TileRows, true, false> {
  using State = WideState<T, T, HeadDim, Warps, TileRows, true, false>;
  using State::group_tile;
  using State::State, State::o, State::p, State::shared_q, State::turn, State::lane, State::scores, State::tiles;

  static constexpr bool overlaps = true;  // a tile's last products and the next tile's first

  __device__ __forceinline__ void load_queries() {
    State::share_queries();
    ptx::fence_proxy_async_shared();
    State::meet();
    State::clear();
  }

  // A tile of 64 keys, `left` of them (and more behind it) within the length. `keys` and `values` are the shared
  // addresses of its first row in the first panel; panels lie panel_bytes apart. All rows see all keys of a whole one.
  // settle() ends the tile before: it calls end_products(), when this tile's first products are on their way.
  template <bool Whole, typename Settle>
  __device__ __forceinline__ uint32_t tile(uint32_t keys, uint32_t values, uint32_t panel_bytes, const float*, int left,
                                           const Settle& settle) {
    const uint32_t queries = ptx::shared_address(shared_q) + State::first_row() * 128;
    float s[scores] = {};
    ptx::wgmma_fence_operand(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < HeadDim / 16; ++i) {
      const uint64_t of_keys = ptx::k_major_descriptor(keys + i / 4 * panel_bytes) + i % 4 * 2;
      const uint64_t of_queries = ptx::k_major_descriptor(queries + i / 4 * (TileRows * 128)) + i % 4 * 2;
      ptx::Wgmma<group_tile>::template ss<T, 0, 0>(s, of_keys, of_queries, i > 0);
    }
    ptx::wgmma_commit_group();
    settle();
    ptx::wgmma_fence_operand(s);
#pragma unroll
    for (int e = 0; e < scores; ++e) s[e] *= p.scale_log2;
    if constexpr (!Whole) State::hide(s, left);
    typename State::Packed packed;
    State::weigh(s, PlainKeys{}, packed);
#pragma unroll
    for (int m = 0; m < tiles; ++m) ptx::wgmma_fence_operand(o[m]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kWideKeys / 16; ++i) {
      const uint64_t of_weights = State::weights_descriptor(i);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        const uint64_t of_values = ptx::mn_major_descriptor(values + m * panel_bytes, kWideKeys) + i * 128;
        ptx::Wgmma<group_tile>::template ss<T, 1, 0>(o[m], of_values, of_weights, 1);
      }
    }
    ptx::wgmma_commit_group();
    State::add_weights(s, PlainKeys{}, packed);
    turn ^= 1;
    return 0;
  }

  // Waits for all products.
  __device__ __forceinline__ void end_products() {
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (int m = 0; m < tiles; ++m) ptx::wgmma_fence_operand(o[m]);
  }

  // For the rows' stores: the warpgroups' sums, added.
  __device__ __forceinline__ void store_sums() {
    const int first = State::warp_of_group() * 16 + lane / 4;
    State::add_groups([first](int m, int e) { return 64 * m + first + 8 * e; }, 1.0f);
  }
};

}  // namespace cuda_llm_ops::cuda::decode
