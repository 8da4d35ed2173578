// Attention's backward in float32 without tensor cores: plain, and the same bits at every launch.
//
// A thread block of `keys_body` owns `Tile` keys and walks over the queries that see them; one of `queries_body` owns
// `Tile` queries and walks over the keys that they see. Both compute a tile's weights and their gradients in shared memory.
// A thread sums elements Threads apart of its block's gradients, in registers.
//
// A logarithm near 10, rounded to float32, makes all weights of its row wrong by up to 5e-7. In base 2 it is rounded again.
// The sum of a row's weights shows that error, and that of a score whose terms the forward added up in another order:
// `sums_body` finds it before, and the others divide by it.
#pragma once

#include <cmath>

#include "../place.cuh"

namespace cuda_llm_ops::cuda::backward::simt {

constexpr int threads = 256;
// Times 1 + |lse_2| + the magnitudes of the terms of a score: what rounding takes from a row's sum of weights.
constexpr double own_sum = 8.0 / (1 << 24);

template <int Dim_, int Tile_>
struct Config {
  static constexpr int dim = Dim_, tile = Tile_, pitch = dim + 1, sums = tile * dim / threads;
  static constexpr int shared_bytes = (4 * tile * pitch + 2 * tile * (tile + 1) + 3 * tile) * 4;
};

// A thread block's shared memory. Rows of what is owned and of what passes by.
template <typename C>
struct Shared {
  float *q, *d_out, *k, *v, *weights, *ds, *lse, *d_sum, *sums;

  __device__ __forceinline__ explicit Shared(float* memory) {
    q = memory;
    d_out = q + C::tile * C::pitch;
    k = d_out + C::tile * C::pitch;
    v = k + C::tile * C::pitch;
    weights = v + C::tile * C::pitch;
    ds = weights + C::tile * (C::tile + 1);
    lse = ds + C::tile * (C::tile + 1);
    d_sum = lse + C::tile;
    sums = d_sum + C::tile;
  }
};

// `rows` rows, at most a tile; the others become zeros.
template <typename C>
__device__ __forceinline__ void load(float* to, const float* from, int64_t stride, int rows, int columns, int thread) {
  for (int i = thread; i < C::tile * C::dim; i += threads) {
    const int row = i / C::dim, column = i % C::dim;
    to[row * C::pitch + column] = row < rows && column < columns ? from[row * stride + column] : 0.0f;
  }
}

// The product of two rows. One sum after the other errs by the size of what it has so far, eight sums by a third of that.
__device__ __forceinline__ float dot(const float* a, const float* b, int columns) {
  float sums[8] = {};
  int c = 0;
#pragma unroll 1
  for (; c + 8 <= columns; c += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = __fmaf_rn(a[c + i], b[c + i], sums[i]);
  }
#pragma unroll 1
  for (; c < columns; ++c) sums[0] = __fmaf_rn(a[c], b[c], sums[0]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The sum of the magnitudes of the same terms, for a bound.
__device__ __forceinline__ float dot_of_magnitudes(const float* a, const float* b, int columns) {
  float sum = 0.0f;
#pragma unroll 1
  for (int c = 0; c < columns; ++c) sum = __fmaf_rn(fabsf(a[c]), fabsf(b[c]), sum);
  return sum;
}

// One sequence's heads, seen from a thread block.
template <typename C>
struct Block {
  const GeneralParameters& p;
  const attention::Span& span;
  int batch, thread;

  __device__ __forceinline__ const float* rows(const void* tensor, const HeadStrides& stride, int head, int row) const {
    return static_cast<const float*>(tensor) + batch * stride.batch + head * stride.head + row * stride.seq;
  }
  __device__ __forceinline__ float* rows(void* tensor, const HeadStrides& stride, int head, int row) const {
    return static_cast<float*>(tensor) + batch * stride.batch + head * stride.head + row * stride.seq;
  }
  // Sums: also those of the rows' weights.
  template <bool Sums>
  __device__ __forceinline__ void load_queries(const Shared<C>& shared, int head, int first) const {
    const int count = span.seq_q - first, row = span.first_q + first;
    load<C>(shared.q, rows(p.q, p.q_stride, head, row), p.q_stride.seq, count, p.head_dim, thread);
    load<C>(shared.d_out, rows(p.d_out, p.d_out_stride, head, row), p.d_out_stride.seq, count, p.value_dim, thread);
    const int64_t at = batch * p.row_stride.batch + head * p.row_stride.head + row;
    for (int i = thread; i < C::tile; i += threads) {
      shared.lse[i] = i < count ? p.lse_2[at + i] : 0.0f;
      shared.d_sum[i] = i < count ? p.d_sum[at + i] : 0.0f;
      if constexpr (Sums) shared.sums[i] = i < count ? p.sums[at + i] : 1.0f;
    }
  }
  __device__ __forceinline__ void load_keys(const Shared<C>& shared, int kv_head, int first) const {
    const int count = span.seq_kv - first, row = span.first_kv + first;
    load<C>(shared.k, rows(p.k, p.k_stride, kv_head, row), p.k_stride.seq, count, p.head_dim, thread);
    load<C>(shared.v, rows(p.v, p.v_stride, kv_head, row), p.v_stride.seq, count, p.value_dim, thread);
  }
  // The weight of a key that the query sees, by the logarithm as it is.
  __device__ __forceinline__ float weight_of(const Shared<C>& shared, int query, int key) const {
    const float score = dot(shared.q + query * C::pitch, shared.k + key * C::pitch, p.head_dim);
    return exp2f(__fmaf_rn(score, p.scale_log2, -shared.lse[query]));
  }
  // weights[query][key] and ds of a tile.
  __device__ __forceinline__ void weigh(const Shared<C>& shared, int first_q, int first_key) const {
    for (int i = thread; i < C::tile * C::tile; i += threads) {
      const int query = i / C::tile, key = i % C::tile;
      float weight = 0.0f, ds = 0.0f;
      if (visible(span, first_q + query, first_key + key)) {
        const float dp = dot(shared.d_out + query * C::pitch, shared.v + key * C::pitch, p.value_dim);
        weight = weight_of(shared, query, key) / shared.sums[query];
        ds = weight * (dp - shared.d_sum[query]);
      }
      shared.weights[query * (C::tile + 1) + key] = weight;
      shared.ds[query * (C::tile + 1) + key] = ds;
    }
  }
};

// sums of element e = thread + j * threads of an owned tile: row e / dim, column e % dim. ByRow: the owned rows are the
// rows of `factors`, else its columns.
template <typename C, bool ByRow>
__device__ __forceinline__ void accumulate(float (&sums)[C::sums], const float* factors, const float* other,
                                           int thread) {
#pragma unroll
  for (int j = 0; j < C::sums; ++j) {
    const int row = (thread + j * threads) / C::dim, column = (thread + j * threads) % C::dim;
    for (int i = 0; i < C::tile; ++i) {
      const float factor = ByRow ? factors[row * (C::tile + 1) + i] : factors[i * (C::tile + 1) + row];
      sums[j] = __fmaf_rn(factor, other[i * C::pitch + column], sums[j]);
    }
  }
}

template <typename C>
__device__ __forceinline__ void store(float* to, int64_t stride, const float (&sums)[C::sums], float factor, int rows,
                                      int columns, int thread) {
#pragma unroll
  for (int j = 0; j < C::sums; ++j) {
    const int row = (thread + j * threads) / C::dim, column = (thread + j * threads) % C::dim;
    if (row < rows && column < columns) to[row * stride + column] = sums[j] * factor;
  }
}

template <typename C>
__device__ __forceinline__ void keys_body(const GeneralParameters& p, int tiles, float* memory, int block) {
  const Place place = Place::of(block, tiles, p.batch * p.kv_heads, p.section);
  const int batch = place.head / p.kv_heads, kv_head = place.head % p.kv_heads, first_key = place.tile * C::tile;
  const attention::Span span = attention::span_of(p.options, batch, p.seq_q, p.seq_kv);
  if (first_key >= span.seq_kv) return;
  const int thread = static_cast<int>(threadIdx.x);
  const Tiles walk = queries_that_see(span, first_key, C::tile, C::tile);
  const Shared<C> shared(memory);
  const Block<C> at{p, span, batch, thread};
  float dk[C::sums] = {}, dv[C::sums] = {};
  at.load_keys(shared, kv_head, first_key);
  for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int i = 0; i < walk.count; ++i) {
      const int first_q = walk.begin + i * C::tile;
      __syncthreads();
      at.template load_queries<true>(shared, head, first_q);
      __syncthreads();
      at.weigh(shared, first_q, first_key);
      __syncthreads();
      accumulate<C, false>(dv, shared.weights, shared.d_out, thread);
      accumulate<C, false>(dk, shared.ds, shared.q, thread);
    }
  }
  const int rows = span.seq_kv - first_key, row = span.first_kv + first_key;
  store<C>(at.rows(p.dv, p.dv_stride, kv_head, row), p.dv_stride.seq, dv, 1.0f, rows, p.value_dim, thread);
  store<C>(at.rows(p.dk, p.dk_stride, kv_head, row), p.dk_stride.seq, dk, p.scale, rows, p.head_dim, thread);
}

// Walks with a tile of queries over the tiles of keys that they see: `each` gets what is in shared memory, the first
// query and the first key; `end` the head and the first query, once no keys are left. Sums: of load_queries.
template <typename C, bool Sums, typename Each, typename End>
__device__ __forceinline__ void walk_over_keys(const GeneralParameters& p, int tiles, float* memory, int block,
                                               const Each& each, const End& end) {
  const Place place = Place::of(block, tiles, p.batch * p.heads, p.section * p.group);
  const int batch = place.head / p.heads, head = place.head % p.heads, first_q = (tiles - 1 - place.tile) * C::tile;
  const attention::Span span = attention::span_of(p.options, batch, p.seq_q, p.seq_kv);
  if (first_q >= span.seq_q) return;
  const int thread = static_cast<int>(threadIdx.x);
  const Tiles walk = keys_seen_by(span, first_q, C::tile, C::tile);
  const Shared<C> shared(memory);
  const Block<C> at{p, span, batch, thread};
  at.template load_queries<Sums>(shared, head, first_q);
  for (int i = 0; i < walk.count; ++i) {
    const int first_key = walk.begin + i * C::tile;
    __syncthreads();
    at.load_keys(shared, head / p.group, first_key);
    __syncthreads();
    each(at, shared, first_q, first_key);
  }
  end(at, shared, head, first_q);
}

template <typename C>
__device__ __forceinline__ void queries_body(const GeneralParameters& p, int tiles, float* memory, int block) {
  float dq[C::sums] = {};
  const auto each = [&](const Block<C>& at, const Shared<C>& shared, int first_q, int first_key) {
    at.weigh(shared, first_q, first_key);
    __syncthreads();
    accumulate<C, true>(dq, shared.ds, shared.k, at.thread);
  };
  const auto end = [&](const Block<C>& at, const Shared<C>&, int head, int first_q) {
    store<C>(at.rows(p.dq, p.dq_stride, head, at.span.first_q + first_q), p.dq_stride.seq, dq, p.scale,
             at.span.seq_q - first_q, p.head_dim, at.thread);
  };
  walk_over_keys<C, true>(p, tiles, memory, block, each, end);
}

// Writes p.sums for a tile of queries.
template <typename C>
__device__ __forceinline__ void sums_body(const GeneralParameters& p, int tiles, float* memory, int block) {
  double sum = 0.0;
  float magnitude = 0.0f;  // the largest of the scores' sums of magnitudes
  const auto each = [&](const Block<C>& at, const Shared<C>& shared, int first_q, int first_key) {
    for (int i = at.thread; i < C::tile * C::tile; i += threads) {
      const int query = i / C::tile, key = i % C::tile, place = query * (C::tile + 1) + key;
      const bool sees = visible(at.span, first_q + query, first_key + key);
      const float *const q = shared.q + query * C::pitch, *const k = shared.k + key * C::pitch;
      shared.weights[place] = sees ? at.weight_of(shared, query, key) : 0.0f;
      shared.ds[place] = sees ? dot_of_magnitudes(q, k, p.head_dim) : 0.0f;
    }
    __syncthreads();
    if (at.thread < C::tile) {
      for (int key = 0; key < C::tile; ++key) {
        sum += shared.weights[at.thread * (C::tile + 1) + key];
        magnitude = fmaxf(magnitude, shared.ds[at.thread * (C::tile + 1) + key]);
      }
    }
  };
  const auto end = [&](const Block<C>& at, const Shared<C>& shared, int head, int first_q) {
    if (at.thread >= min(C::tile, at.span.seq_q - first_q)) return;
    // A sum further from 1 than rounding explains is of logarithms over other keys too, and they count.
    const double most = own_sum * (1.0 + fabsf(shared.lse[at.thread]) + magnitude * fabsf(p.scale_log2));
    const int64_t row = at.span.first_q + first_q + at.thread;
    p.sums[at.batch * p.row_stride.batch + head * p.row_stride.head + row] =
        fabs(sum - 1.0) <= most ? static_cast<float>(sum) : 1.0f;
  };
  walk_over_keys<C, false>(p, tiles, memory, block, each, end);
}

}  // namespace cuda_llm_ops::cuda::backward::simt
