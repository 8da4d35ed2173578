// Flash attention forward on Hopper with AttentionOptions: bands of keys, logarithms of the rows' sums, packed sequences.
// A kernel beside sm90_flash.cuh, so that the plain one stays as it is: of its ways of working this has one.
//
//   block      a producer warp and two consumer warpgroups of 64 query rows each; persistent, longest tiles first
//   shared     tiles in panels of 64 columns (128 bytes, TMA's swizzle): Q [warpgroup][panel][64 rows],
//              K and V [stage][panel][BlockN rows]
//   step j     scores of block j are issued, then the product of the weights of block j + 1 with V; the softmax of block j
//              runs under that. With ping_pong the warpgroups issue in turn, and one's softmax runs under the other's
//              products.
//
// Keys are counted from the first block that the tile's rows see, blocks are walked from the last to the first. What lies
// behind a packed sequence belongs to the next: its scores are masked, its V rows are multiplied by weights of 0.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "../ptx/barrier.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/setmaxnreg.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_general.h"
#include "sm90_softmax.cuh"
#include "span.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

template <typename T_, int HeadDim, int BlockN, int Stages, bool PingPong>
struct Config {
  using T = T_;
  static constexpr int head_dim = HeadDim, block_n = BlockN, stages = Stages;
  static constexpr bool ping_pong = PingPong;
  static constexpr int panels = (HeadDim + 63) / 64;
  static constexpr int threads = 2 * 128 + 128;
  static constexpr int q_bytes = panels * 64 * 128;       // one warpgroup's
  static constexpr int kv_bytes = panels * BlockN * 128;  // one stage of K or V
  static constexpr int barriers = 4 + 4 * Stages;
  static constexpr int band_bytes = 8 * 16;
  static constexpr int shared_bytes = 1024 + 2 * q_bytes + 2 * Stages * kv_bytes + band_bytes + barriers * 8;
  static_assert(HeadDim % 16 == 0 && BlockN % 16 == 0 && HeadDim <= 256 && BlockN <= 256 && Stages >= 2);
  static_assert(shared_bytes <= 232448, "more shared memory than a block can have");
};

constexpr uint32_t turn_barrier = 1;  // and the next: turns of the warpgroups; 0 is __syncthreads

struct Tile {
  bool valid;           // false: none is left
  int row;              // its first query, of the sequence; -1: no row, to be passed over
  int head, batch;
  int blocks;           // of keys, from first_key on
  int first_key;        // row in K and V
  int seq_kv;           // keys from first_key to the sequence's end
  int low, high;        // row r sees keys r + low <= j < r + high from first_key on
  int first_q, seq_q;   // the sequence in Q
};

// The i-th tile of this block: longest first over a section of heads, every other round of the blocks in reverse.
template <int BlockN>
__device__ __forceinline__ Tile tile_at(const Parameters& p, int i) {
  const int blocks = gridDim.x, block = blockIdx.x;
  const int index = i * blocks + (i % 2 == 0 ? block : blocks - 1 - block);
  const int per_section = p.section * p.m_tiles;
  const int section = index / per_section;
  const int heads = min(p.section, p.batch_heads - section * p.section);
  Tile tile{};
  if (heads <= 0) return tile;
  const int rest = index - section * per_section;
  const int from_last = rest / heads;
  if (from_last >= p.m_tiles) return tile;
  const int batch_head = section * p.section + rest - from_last * heads;
  tile.valid = true;
  tile.batch = batch_head / p.heads;
  tile.head = batch_head - tile.batch * p.heads;
  tile.row = (p.m_tiles - 1 - from_last) * block_m;
  const attention::Span span = attention::span_of(p.options, tile.batch, p.seq_q, p.seq_kv);
  tile.first_q = span.first_q;
  tile.seq_q = span.seq_q;
  const int first = max(0, tile.row + span.low) / BlockN * BlockN;
  const int end = min(span.seq_kv, min(tile.row + block_m, span.seq_q) - 1 + span.high);
  tile.blocks = max(0, end - first + BlockN - 1) / BlockN;
  tile.first_key = span.first_kv + first;
  tile.seq_kv = span.seq_kv - first;
  tile.low = span.low - first;
  tile.high = span.high - first;
  if (tile.row >= span.seq_q) tile.row = -1;
  return tile;
}

template <int Stages>
__device__ __forceinline__ uint32_t ring_stage(uint32_t count) { return count % Stages; }
template <int Stages>
__device__ __forceinline__ uint32_t ring_parity(uint32_t count) { return count / Stages & 1; }

template <typename C>
struct Layout {
  uint32_t q, k, v, band, barriers;

  __device__ __forceinline__ explicit Layout(const void* raw) {
    q = (ptx::shared_address(raw) + 1023u) & ~1023u;
    k = q + 2 * C::q_bytes;
    v = k + C::stages * C::kv_bytes;
    band = v + C::stages * C::kv_bytes;
    barriers = band + C::band_bytes;
  }
  __device__ __forceinline__ uint32_t q_full(int i) const { return barriers + i * 8; }
  __device__ __forceinline__ uint32_t q_empty(int i) const { return barriers + (2 + i) * 8; }
  __device__ __forceinline__ uint32_t k_full(int s) const { return barriers + (4 + s) * 8; }
  __device__ __forceinline__ uint32_t k_empty(int s) const { return k_full(s) + C::stages * 8; }
  __device__ __forceinline__ uint32_t v_full(int s) const { return k_full(s) + 2 * C::stages * 8; }
  __device__ __forceinline__ uint32_t v_empty(int s) const { return k_full(s) + 3 * C::stages * 8; }
};

template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const Layout<C>& shared) {
  uint32_t k_count = 0, v_count = 0, q_parity = 1;
  for (int i = 0;; ++i) {
    const Tile tile = tile_at<C::block_n>(p, i);
    if (!tile.valid) return;
    if (tile.row < 0 || tile.blocks == 0) continue;
    const int batch = p.options.cu_seqlens_q == nullptr ? tile.batch : 0;
    const int kv_head = tile.head / p.group;
    const auto load = [&](const CUtensorMap* map, uint32_t to, uint32_t full, uint32_t empty, uint32_t count, int j) {
      ptx::mbarrier_wait(empty, ring_parity<C::stages>(count) ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, C::kv_bytes);
#pragma unroll
      for (int panel = 0; panel < C::panels; ++panel) {
        ptx::tma_load_4d(to + panel * C::block_n * 128, map, full, panel * 64, tile.first_key + j * C::block_n, kv_head,
                         batch, ptx::evict_last);
      }
    };
    const auto load_k = [&](int j) {
      const uint32_t stage = ring_stage<C::stages>(k_count);
      load(&p.k, shared.k + stage * C::kv_bytes, shared.k_full(stage), shared.k_empty(stage), k_count++, j);
    };
    const auto load_v = [&](int j) {
      const uint32_t stage = ring_stage<C::stages>(v_count);
      load(&p.v, shared.v + stage * C::kv_bytes, shared.v_full(stage), shared.v_empty(stage), v_count++, j);
    };
    load_k(tile.blocks - 1);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      ptx::mbarrier_wait(shared.q_empty(w), q_parity);
      ptx::mbarrier_arrive_expect_tx(shared.q_full(w), C::q_bytes);
#pragma unroll
      for (int panel = 0; panel < C::panels; ++panel) {
        ptx::tma_load_4d(shared.q + w * C::q_bytes + panel * 64 * 128, &p.q, shared.q_full(w), panel * 64,
                         tile.first_q + tile.row + w * 64, tile.head, batch, ptx::evict_first);
      }
    }
    q_parity ^= 1;
    // Scores run one block ahead of the product with V, so K leads by one.
    for (int j = tile.blocks - 2; j >= 0; --j) {
      load_k(j);
      load_v(j + 1);
    }
    load_v(0);
  }
}

// One consumer warpgroup.
template <typename C>
struct Consumer {
  using T = typename C::T;
  using Weights = uint32_t[C::block_n / 16][4];  // packed to 16 bits: A fragments of 16 keys each
  static constexpr int n = C::block_n, d = C::head_dim;

  const Parameters& p;
  const Layout<C>& shared;
  const int group, lane;
  int blocks;  // of the tile

  // What mask() needs of a tile, in shared memory: the accumulators leave no registers for it.
  struct Band {
    int first_row;  // of this warpgroup's 64, in the sequence
    int seq_kv, low, high;
  };
  __device__ __forceinline__ volatile Band& band() const {
    return *static_cast<volatile Band*>(__cvta_shared_to_generic(shared.band + threadIdx.x / 32 * 16));
  }
  float o[d / 2];
  flash::RowState state;

  __device__ __forceinline__ Consumer(const Parameters& parameters, const Layout<C>& layout, int warp_group)
      : p(parameters), shared(layout), group(warp_group), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C::ping_pong) ptx::bar_sync(turn_barrier + group, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C::ping_pong) ptx::bar_arrive(turn_barrier + 1 - group, 256);
  }
  __device__ __forceinline__ void wait_k(uint32_t count) const {
    ptx::mbarrier_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }
  __device__ __forceinline__ void release_k(uint32_t count) const {
    release(shared.k_empty(ring_stage<C::stages>(count)));
  }
  __device__ __forceinline__ void release_v(uint32_t count) const {
    release(shared.v_empty(ring_stage<C::stages>(count)));
  }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) const {
    const uint64_t q = ptx::k_major_descriptor(shared.q + group * C::q_bytes);
    const uint64_t k = ptx::k_major_descriptor(shared.k + ring_stage<C::stages>(count) * C::kv_bytes);
    wait_turn();
    ptx::wgmma_fence_operand(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < d / 16; ++i) {
      const int panel = i / 4, within = i % 4 * 2;
      ptx::Wgmma<n>::template ss<T, 0, 0>(s, q + panel * 512 + within, k + panel * (n * 8) + within, i != 0);
    }
    ptx::wgmma_commit_group();
  }

  // o += weights v of the ring's V tile `count`; one committed group.
  __device__ __forceinline__ void issue_output(Weights& weights, uint32_t count) {
    const uint32_t stage = ring_stage<C::stages>(count);
    ptx::mbarrier_wait(shared.v_full(stage), ring_parity<C::stages>(count));
    const uint64_t v = ptx::mn_major_descriptor(shared.v + stage * C::kv_bytes, n);
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(weights[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::Wgmma<d>::template rs<T, 1>(o, weights[i], v + i * 128, 1);
    ptx::wgmma_commit_group();
  }

  // Masks block j where one of this warpgroup's rows does not see all of it.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j) const {
    const int first_row = band().first_row, seq_kv = band().seq_kv, low = band().low, high = band().high;
    if ((j + 1) * n <= min(seq_kv, first_row + high) && j * n >= first_row + 63 + low) return;
    const int row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int first = j * n + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int begin = row + 8 * h + low - first;
      const int end = min(seq_kv, row + 8 * h + high) - first;
#pragma unroll
      for (int g = 0; g < n / 8; ++g) {
#pragma unroll
        for (int parity = 0; parity < 2; ++parity) {
          const int column = 8 * g + parity;
          if (column >= end || column < begin) s[4 * g + 2 * h + parity] = flash::minus_infinity;
        }
      }
    }
  }

  // Blocks blocks - 1 .. 0 of keys, whose ring positions are count, count + 1, ..
  __device__ __forceinline__ void attend(uint32_t count) {
    Weights a, b;
    int j = blocks - 1;
    {
      float s[n / 2], rescale[2];
      wait_k(count);
      issue_scores(s, count);
      pass_turn();
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(s);
      release_k(count);
      mask(s, j);
      flash::take_block<T>(a, s, state, rescale, p.scale_log2);
    }
    --j;
    if (j >= 0) wait_k(count + 1);
    for (; j >= 1; j -= 2, count += 2) {
      advance(a, b, j, count);
      advance(b, a, j - 1, count + 1);
    }
    if (j >= 0) {
      advance(a, b, j, count);
      release(shared.q_empty(group));
      end(b, count + 1);
    } else {
      release(shared.q_empty(group));
      end(a, count);
    }
  }

  // One block: its scores, and under its softmax the product of the block before, whose weights are `previous`.
  __device__ __forceinline__ void advance(Weights& previous, Weights& next, int j, uint32_t count) {
    float s[n / 2], rescale[2];
    issue_scores(s, count + 1);
    issue_output(previous, count);
    pass_turn();
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    release_k(count + 1);
    mask(s, j);
    const bool kept = flash::try_block<T>(next, s, state, p.scale_log2);
    if (!kept) flash::take_block<T>(next, s, state, rescale, p.scale_log2);
    if (j >= 1) wait_k(count + 2);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(previous[i]);
    release_v(count);
    if (!kept) flash::rescale_output(o, rescale);
  }

  // The last product.
  __device__ __forceinline__ void end(Weights& last, uint32_t count) {
    issue_output(last, count);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
    release_v(count);
  }

  __device__ __forceinline__ void run() {
    uint32_t count = 0, q_parity = 0;
    if constexpr (C::ping_pong) {
      if (group == 1) ptx::bar_arrive(turn_barrier, 256);
    }
    for (int i = 0;; ++i) {
      {
        const Tile tile = tile_at<n>(p, i);
        if (!tile.valid) return;
        if (tile.row < 0) continue;
        blocks = tile.blocks;
        __syncwarp();  // all have read the last
        if (lane == 0) {
          band().first_row = tile.row + group * 64;
          band().seq_kv = tile.seq_kv;
          band().low = tile.low;
          band().high = tile.high;
        }
        __syncwarp();
      }
      state.reset();
#pragma unroll
      for (int e = 0; e < d / 2; ++e) o[e] = 0.0f;
      if (blocks > 0) {
        ptx::mbarrier_wait(shared.q_full(group), q_parity);
        q_parity ^= 1;
        attend(count);
        count += blocks;
      }
      store(tile_at<n>(p, i));  // computed again, for the same reason as Band
    }
  }

  // Normalises and writes: the four lanes of a row exchange pairs so that each writes 16 bytes of four 8-column groups.
  __device__ __forceinline__ void store(const Tile& tile) const {
    const int quad = lane % 4;
    T* const head = static_cast<T*>(p.out) + tile.batch * p.out_batch + tile.head * p.out_head;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = flash::finish(state, h);
      const float sum = flash::quad_sum(state.sum[h]);
      const int row = tile.row + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * h;
      const bool inside = row < tile.seq_q;
      if (p.options.lse != nullptr && inside && quad == 0) {
        p.options.lse[tile.batch * p.options.lse_stride_batch + tile.head * p.options.lse_stride_head + tile.first_q +
                      row] =
            state.maximum[h] == flash::minus_infinity ? flash::minus_infinity
                                                      : attention::log_sum_exp(state.maximum[h], sum);
      }
      T* const to = head + (tile.first_q + row) * p.out_seq;
#pragma unroll
      for (int g = 0; g + 4 <= d / 8; g += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = flash::pack(T{}, o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
        }
        transpose_quad(x, quad);
        const int column = 8 * (g + quad);
        if (inside && column < p.head_dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }

  // x[i] of lane q becomes x[q] of lane i, within each four lanes.
  static __device__ __forceinline__ void transpose_quad(uint32_t (&x)[4], int quad) {
    const bool odd = quad & 1, upper = quad & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t received = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
      (odd ? x[i] : x[i + 1]) = received;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2);
      (upper ? x[i] : x[i + 2]) = received;
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const Layout<C> shared(raw);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp == 0 && ptx::elect_sync()) {
    ptx::prefetch_tensormap(&p.q);
    ptx::prefetch_tensormap(&p.k);
    ptx::prefetch_tensormap(&p.v);
    for (int w = 0; w < 2; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), 4);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 8);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 8);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // The next grid's blocks come in as this one's end.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (warp >= 8) {
    ptx::setmaxnreg_dec<24>();
    if (warp == 8 && ptx::elect_sync()) produce<C>(p, shared);
  } else {
    ptx::setmaxnreg_inc<240>();
    Consumer<C> consumer(p, shared, warp / 4);
    consumer.run();
  }
#endif
}

template <typename C>
inline Instance instance(const char* name) {
  static_assert(C::head_dim % 32 == 0, "store() writes four 8-column groups at a time");
  return {ptx::is_bfloat16<typename C::T> ? ScalarType::bfloat16 : ScalarType::float16,
          C::head_dim,
          C::block_n,
          {"flash_attention", name, reinterpret_cast<const void*>(&kernel<C>), C::threads, C::shared_bytes}};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
