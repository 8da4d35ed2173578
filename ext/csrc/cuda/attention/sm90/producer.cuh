// The producer of the kernels whose tensors TMA can describe: one thread walks the thread block's tiles and loads Q, K
// and V in the order in which the consumers need them. The realigned and the varlen kernels have producers of their
// own.
#pragma once

#include <cstdint>

#include "../../ptx/mbarrier.cuh"
#include "../../ptx/tma.cuh"
#include "instance.h"
#include "ring.cuh"
#include "schedule.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// By one thread.
__device__ __forceinline__ void prefetch_tensor_maps(const Parameters& p) {
  ptx::prefetch_tensormap(&p.q);
  ptx::prefetch_tensormap(&p.k);
  ptx::prefetch_tensormap(&p.v);
}

// Calls load_k(first key, head, batch), load_v of the same, and load_q(warpgroup, first query, head, batch) in the
// order of the consumers' needs. Key blocks go from the last to the first, so that masked ones come first.
template <typename C, typename LoadQ, typename LoadK, typename LoadV>
__device__ __forceinline__ void walk(const Parameters& p, const LoadQ& load_q, const LoadK& load_k,
                                     const LoadV& load_v) {
  const int rank = cluster_rank<C>();
  for (int i = 0;; ++i) {
    const Tile tile = tile_at<C>(p, i);
    if (!tile.valid) return;
    if (tile.m < 0) continue;
    const int row = C::cross_tile ? tile.row : (tile.m * C::cluster + rank) * C::block_m;
    const int row_end = C::cross_tile ? row + tile.units * 64 : (tile.m + 1) * (C::block_m * C::cluster);
    const int before = C::stream_k ? tile.first_block : 0;
    const int blocks = C::stream_k ? tile.end_block - before : key_blocks<C::block_n>(p, min(row_end, p.seq_q));
    const int kv_head = tile.head / p.group;
    const auto row_of = [&](int j) { return (before + j) * C::block_n; };
    load_k(row_of(blocks - 1), kv_head, tile.batch);
#pragma unroll
    for (int w = 0; w < C::q_tiles; ++w) {
      if (!C::cross_tile || w < tile.units) load_q(w, row + w * 64, tile.head, tile.batch);
    }
    // Scores run one block ahead of the product with V, so K leads by one.
    for (int j = blocks - 2; j >= 0; --j) {
      load_k(row_of(j), kv_head, tile.batch);
      load_v(row_of(j + 1), kv_head, tile.batch);
    }
    load_v(row_of(0), kv_head, tile.batch);
  }
}

// One thread's work. In a cluster, each thread block loads its share of every K and V tile into the shared memory of
// all.
template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const RingLayout<C>& shared) {
  uint32_t k_count = 0, v_count = 0, q_parity = ~0u;  // a bit for each warpgroup: their tiles may differ in number
  const int share = cluster_rank<C>() * (C::block_n / C::cluster);
  const auto load_kv = [&](const CUtensorMap* map, int panels, uint32_t tile, uint32_t full, uint32_t empty,
                           uint32_t parity, int row, int head, int batch) {
    if constexpr (C::cluster == 1) {
      ptx::mbarrier_wait(empty, parity);
    } else {
      ptx::mbarrier_wait_cluster(empty, parity);
    }
    ptx::mbarrier_arrive_expect_tx(full, panels * (C::block_n * kPanelBytes));
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      const uint32_t to = tile + panel * (C::block_n * kPanelBytes) + share * kPanelBytes;
      if constexpr (C::cluster == 1) {
        ptx::tma_load_4d(to, map, full, panel * 64, row, head, batch, ptx::evict_last);
      } else {
        ptx::tma_load_4d_multicast(to, map, full, panel * 64, row + share, head, batch, 3, ptx::evict_last);
      }
    }
  };
  const auto load_k = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(k_count), parity = ring_parity<C::stages>(k_count) ^ 1;
    load_kv(&p.k, C::panels, shared.k + stage * C::k_bytes, shared.k_full(stage), shared.k_empty(stage), parity, row,
            head, batch);
    ++k_count;
  };
  const auto load_v = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(v_count), parity = ring_parity<C::stages>(v_count) ^ 1;
    load_kv(&p.v, C::v_panels, shared.v + stage * C::v_bytes, shared.v_full(stage), shared.v_empty(stage), parity, row,
            head, batch);
    ++v_count;
  };
  const auto load_q = [&](int w, int row, int head, int batch) {
    ptx::mbarrier_wait(shared.q_empty(w), q_parity >> w & 1);
    q_parity ^= 1u << w;
    ptx::mbarrier_arrive_expect_tx(shared.q_full(w), C::q_bytes);
#pragma unroll
    for (int panel = 0; panel < C::panels; ++panel) {
      ptx::tma_load_4d(shared.q + w * C::q_bytes + panel * 64 * kPanelBytes, &p.q, shared.q_full(w), panel * 64, row,
                       head, batch, ptx::evict_first);
    }
  };
  walk<C>(p, load_q, load_k, load_v);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
