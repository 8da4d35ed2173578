// Loads of packed sequences for attention's backward on Hopper. TMA reads what stands in the tensor behind a sequence:
// the next one's rows, where a tensor that ends there would give zeros. Their weights are 0, but 0 times an infinity or
// NaN is NaN. So a tile that has such rows comes over a barrier of its own. A warp that has nothing else to do waits
// for it, makes them zeros, and gives the tile on. What multiplies need not know.
//
// Of queries that is the last tile of the sequence, the first of the walk over each query head.
#pragma once

#include "sm90_walk.cuh"

namespace cuda_llm_ops::cuda::backward {

// One thread's work: TMA.
template <typename C>
__device__ __forceinline__ void produce_packed(const Parameters& p, const Layout<C>& shared, const Work& work) {
  static_assert(C::cluster == 1 && C::q_stages == 2 && C::o_stages == 2, "so many barriers of landed tiles");
  {
    const int key = first_key_of<C>(work), row = work.span.first_kv + key;
    const bool partial = key + C::block_n > work.span.seq_kv;
    const uint32_t k_full = partial ? shared.k_landed() : shared.k_full();
    ptx::mbarrier_arrive_expect_tx(k_full, C::k_bytes);
    load_tile<C::panels, C::block_n>(shared.k, &p.k, k_full, row, work.kv_head, 0, ptx::evict_first);
    const uint32_t v_full = partial ? shared.v_landed() : shared.v_full();
    ptx::mbarrier_arrive_expect_tx(v_full, C::v_bytes);
    load_tile<C::value_panels, C::block_n>(shared.v, &p.v, v_full, row, work.kv_head, 0, ptx::evict_first);
  }
  ptx::griddepcontrol_wait();
  uint32_t i = 0;
  for (int g = 0; g < p.group; ++g) {
    const int head = work.kv_head * p.group + g;
    for (int m = work.first_m + work.tiles - 1; m >= work.first_m; --m) {
      const int row = work.span.first_q + m * C::block_m;
      const int64_t of_rows = static_cast<int64_t>(head) * p.padded_q + work.first_row + m * C::block_m;
      const bool partial = (m + 1) * C::block_m > work.span.seq_q;
      uint32_t stage = stage_of<C::q_stages>(i);
      ptx::mbarrier_wait(shared.q_empty(stage), parity_of<C::q_stages>(i) ^ 1);
      const uint32_t q_full = partial ? shared.q_landed(stage) : shared.q_full(stage);
      ptx::mbarrier_arrive_expect_tx(q_full, C::q_bytes + C::row_bytes);
      load_tile<C::panels, C::block_m>(shared.q + stage * C::q_bytes, &p.q, q_full, row, head, 0, ptx::evict_last);
      ptx::bulk_load(shared.lse + stage * C::row_bytes, p.lse + of_rows, C::row_bytes, q_full);
      stage = stage_of<C::o_stages>(i);
      ptx::mbarrier_wait(shared.o_empty(stage), parity_of<C::o_stages>(i) ^ 1);
      const uint32_t o_full = partial ? shared.o_landed(stage) : shared.o_full(stage);
      ptx::mbarrier_arrive_expect_tx(o_full, C::d_out_bytes + C::row_bytes);
      load_tile<C::value_panels, C::block_m>(shared.d_out + stage * C::d_out_bytes, &p.d_out, o_full, row, head, 0,
                                             ptx::evict_last);
      ptx::bulk_load(shared.d_sum + stage * C::row_bytes, p.d_sum + of_rows, C::row_bytes, o_full);
      ++i;
    }
  }
}

// The whole warp. Rows from `valid` on of a tile that has landed become zeros, and the tile is there.
template <int Panels, int TileRows>
__device__ __forceinline__ void zero_rest(uint32_t tile, int valid, uint32_t landed, uint32_t parity, uint32_t full) {
  ptx::mbarrier_wait(landed, parity);
#pragma unroll
  for (int panel = 0; panel < Panels; ++panel) {
    const uint32_t begin = tile + panel * TileRows * 128, end = begin + TileRows * 128;
    for (uint32_t at = begin + valid * 128 + lane() * 16; at < end; at += 512) {
      ptx::store_shared_vector(at, make_uint4(0, 0, 0, 0));
    }
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (lane() == 0) ptx::mbarrier_arrive(full);
}

// A warp's work: all partial tiles of the block.
template <typename C>
__device__ __forceinline__ void zero_rests(const Parameters& p, const Layout<C>& shared, const Work& work) {
  const int keys = work.span.seq_kv - first_key_of<C>(work);
  if (keys < C::block_n) {
    zero_rest<C::panels, C::block_n>(shared.k, keys, shared.k_landed(), 0, shared.k_full());
    zero_rest<C::value_panels, C::block_n>(shared.v, keys, shared.v_landed(), 0, shared.v_full());
  }
  const int queries = work.span.seq_q - (work.first_m + work.tiles - 1) * C::block_m;
  if (work.tiles == 0 || queries >= C::block_m) return;
  uint32_t parities = 0;  // of either stage
  for (uint32_t i = 0; i < static_cast<uint32_t>(work.tiles * p.group); i += work.tiles) {
    const uint32_t stage = stage_of<C::q_stages>(i), parity = parities >> stage & 1;
    zero_rest<C::panels, C::block_m>(shared.q + stage * C::q_bytes, queries, shared.q_landed(stage), parity,
                                     shared.q_full(stage));
    zero_rest<C::value_panels, C::block_m>(shared.d_out + stage * C::d_out_bytes, queries, shared.o_landed(stage),
                                           parity, shared.o_full(stage));
    parities ^= 1u << stage;
  }
}

}  // namespace cuda_llm_ops::cuda::backward
