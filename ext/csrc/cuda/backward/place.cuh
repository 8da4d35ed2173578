// Where a thread block of the backward for any mask works: its head, its tile, and what the tile sees.
#pragma once

#include "../attention/span.cuh"
#include "general.h"

namespace cuda_llm_ops::cuda::backward {

// Tile `index` of all: sections of heads one after the other, in a section one tile of every head after the other.
struct Place {
  int head, tile;  // head of batch * heads

  __device__ __forceinline__ static Place of(int index, int tiles, int heads, int section) {
    const int first = index / (section * tiles) * section;
    const int rest = index - first * tiles, wide = min(section, heads - first);
    return {first + rest % wide, rest / wide};
  }
};

// Rows from `begin` in `count` tiles of `size` rows; the last may be partial.
struct Tiles {
  int begin, count;

  __device__ __forceinline__ static Tiles between(int begin, int end, int size) {
    begin = begin / size * size;
    return {begin, max(0, end - begin + size - 1) / size};
  }
};

// Tiles of queries that see a key of first .. first + size - 1.
__device__ __forceinline__ Tiles queries_that_see(const attention::Span& span, int first, int size, int tile) {
  const int last = min(first + size, span.seq_kv) - 1;
  return Tiles::between(max(0, first - span.high + 1), min(span.seq_q, last - span.low + 1), tile);
}

// Tiles of keys that a query of first .. first + size - 1 sees.
__device__ __forceinline__ Tiles keys_seen_by(const attention::Span& span, int first, int size, int tile) {
  const int last = min(first + size, span.seq_q) - 1;
  return Tiles::between(max(0, first + span.low), min(span.seq_kv, last + span.high), tile);
}

// What a thread block is about, kept in shared memory: the sums leave no registers for it. Each step reads what it needs.
struct Plan {
  int batch, head;                                  // the key head, or the query's
  int seq_q, seq_kv, first_q, first_kv, low, high;  // span.cuh
  int first;                                        // of the block's own rows
  int begin, count;                                 // the tiles that it walks over

  __device__ __forceinline__ static void write(volatile Plan& to, int batch, int head, const attention::Span& span,
                                               int first, const Tiles& walk) {
    to.batch = batch, to.head = head, to.first = first, to.begin = walk.begin, to.count = walk.count;
    to.seq_q = span.seq_q, to.seq_kv = span.seq_kv, to.first_q = span.first_q, to.first_kv = span.first_kv;
    to.low = span.low, to.high = span.high;
  }
  __device__ __forceinline__ static attention::Span span(const volatile Plan& of) {
    return {of.seq_q, of.seq_kv, of.first_q, of.first_kv, of.low, of.high};
  }
};

// A block of pairs, queries first_q .. last_q with keys first_key .. last_key.
struct Pairs {
  int first_q, last_q, first_key, last_key;

  __device__ __forceinline__ bool all_hidden(const attention::Span& span) const {
    return first_key >= last_q + span.high || last_key < first_q + span.low || first_q >= span.seq_q ||
           first_key >= span.seq_kv;
  }
  __device__ __forceinline__ bool some_hidden(const attention::Span& span) const {
    return last_key >= first_q + span.high || first_key < last_q + span.low || last_q >= span.seq_q ||
           last_key >= span.seq_kv;
  }
};

__device__ __forceinline__ bool visible(const attention::Span& span, int query, int key) {
  return key < query + span.high && key >= query + span.low && query < span.seq_q && key < span.seq_kv;
}

}  // namespace cuda_llm_ops::cuda::backward
