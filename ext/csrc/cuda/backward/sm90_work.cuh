// What a thread block of the Hopper kernels of attention's backward has to do: its keys, and the queries that see them.
#pragma once

#include "../ptx/cluster.cuh"
#include "sm90_slots.cuh"

namespace cuda_llm_ops::cuda::backward {

struct Work {
  int n, kv_head,
      batch;  // its keys, `walk_n` of them, which the blocks of a cluster share
  int first_m,
      tiles;  // its query tiles of one head: first_m .. first_m + tiles - 1
  // Of packed sequences alone. n and first_m count from the sequence's begin, and batch is 0.
  attention::Span span;
  int first_row;  // the sequence's first in lse, d_sum and dQ's sums
};

// Without keys, where there are fewer tiles.
template <typename C>
__device__ __forceinline__ Work packed_work(const Parameters& p, int index, int kv_head) {
  const KeyTiles tiles{p.options.cu_seqlens_kv, p.options.total_kv, p.sequences, p.seq_kv};
  const KeyTile tile = p.causal ? tiles.by_rest(index) : tiles.by_sequence(index);
  if (tile.sequence < 0) return {};
  const attention::Span span = attention::span_of(p.options, tile.sequence, p.seq_q, p.seq_kv);
  const int n = tile.n;
  const int first_q = max(0, n * C::walk_n - span.high + 1);
  const int end = min(span.seq_q, min((n + 1) * C::walk_n, span.seq_kv) - span.low), first_m = first_q / C::block_m;
  const int count = end > first_q ? (end - 1) / C::block_m - first_m + 1 : 0;
  return {n, kv_head, 0, first_m, count, span, first_slot(span.first_q, tile.sequence) * row_padding};
}

template <typename C>
__device__ __forceinline__ Work work_of(const Parameters& p, int block) {
  const int index = block / C::cluster;
  const int per_section = p.section * p.n_tiles, section = index / per_section, within = index - section * per_section;
  const int heads = min(p.section, p.batch_heads - section * p.section);
  const int n = within / heads, head = section * p.section + within % heads;
  if constexpr (C::packed) return packed_work<C>(p, n, head);
  if constexpr (C::windowed) {
    const int first_q = max(0, n * C::walk_n - p.high + 1);
    const int end = min(p.seq_q, min((n + 1) * C::walk_n, p.seq_kv) - p.low), first_m = first_q / C::block_m;
    const int tiles = end > first_q ? (end - 1) / C::block_m - first_m + 1 : 0;
    return {n, head % p.kv_heads, head / p.kv_heads, first_m, tiles};
  }
  const int first = p.causal ? n * C::walk_n / C::block_m : 0;
  return {n, head % p.kv_heads, head / p.kv_heads, first, max(p.m_tiles - first, 0)};
}

// Of a block.
template <typename C>
__device__ __forceinline__ int first_key_of(const Work& work) {
  if constexpr (C::cluster == 1) return work.n * C::walk_n;
  return work.n * C::walk_n + static_cast<int>(ptx::cluster_ctarank()) * C::block_n;
}

// The lengths and the window of the block's sequence.
template <typename C>
__device__ __forceinline__ int seq_q_of(const Parameters& p, const Work& work) {
  if constexpr (C::packed) return work.span.seq_q;
  return p.seq_q;
}
template <typename C>
__device__ __forceinline__ int seq_kv_of(const Parameters& p, const Work& work) {
  if constexpr (C::packed) return work.span.seq_kv;
  return p.seq_kv;
}
template <typename C>
__device__ __forceinline__ int low_of(const Parameters& p, const Work& work) {
  if constexpr (C::packed) return work.span.low;
  return p.low;
}
template <typename C>
__device__ __forceinline__ int high_of(const Parameters& p, const Work& work) {
  if constexpr (C::packed) return work.span.high;
  return p.high;
}

// The first block of dQ's sums of the tile m of the first query head that the block walks over.
template <typename C>
__device__ __forceinline__ int64_t sum_block(const Parameters& p, const Work& work, int m) {
  const int batch_head = (work.batch * p.kv_heads + work.kv_head) * p.group;
  int tile = m;
  if constexpr (C::packed) tile += work.first_row / C::block_m;
  return (static_cast<int64_t>(batch_head) * (p.padded_q / sum_rows) + tile * C::query_panels) * C::panels;
}

}  // namespace cuda_llm_ops::cuda::backward
