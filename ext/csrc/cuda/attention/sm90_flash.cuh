// Flash attention forward on Hopper: a producer warp feeds K and V tiles by TMA through two rings of shared memory;
// consumer warpgroups of 64 query rows each multiply by wgmma and keep scores, weights and outputs in registers.
// Blocks are persistent; keys are walked from the last block to the first, so that masks come first.
//
// Shared memory, tiles in panels of 64 columns (128 bytes, the span of TMA's swizzle) one after another:
//   Q [warpgroup][panel][64 rows], K [stage][panel][BlockN rows], V the same. A head_dim between multiples of 64 wastes
//   the last panel's tail; columns past the real head_dim, and rows past the sequence, arrive as zeros.
#pragma once

#include <cstdint>

#include "../ptx/barrier.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/setmaxnreg.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "sm90_instance.h"
#include "sm90_softmax.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// Compile-time shape of a kernel. With `ping_pong` the warpgroups issue their products in turn, so that one's softmax
// falls under the others' products. With `split_keys` the two warpgroups share 64 rows, take alternate blocks of keys
// and combine at the end: for few, short tiles.
template <typename T_, int HeadDim, int BlockN, int Consumers, int Stages, bool PingPong, bool SplitKeys>
struct Config {
  using T = T_;
  static constexpr int head_dim = HeadDim, block_n = BlockN, consumers = Consumers, stages = Stages;
  static constexpr bool ping_pong = PingPong, split_keys = SplitKeys;
  static constexpr int panels = (HeadDim + 63) / 64;
  static constexpr int block_m = SplitKeys ? 64 : 64 * Consumers;
  static constexpr int q_tiles = SplitKeys ? 1 : Consumers;
  static constexpr int threads = Consumers * 128 + 128;
  static constexpr int producer_registers = Consumers == 2 ? 24 : 32;
  static constexpr int consumer_registers = Consumers == 2 ? 240 : 160;
  static constexpr int q_bytes = panels * 64 * 128;       // one warpgroup's
  static constexpr int kv_bytes = panels * BlockN * 128;  // one stage of K or V
  static constexpr int combine_bytes = SplitKeys ? 128 * (HeadDim / 2 + 4) * 4 : 0;
  static constexpr int barriers = 2 * q_tiles + 4 * Stages;
  static constexpr int shared_bytes = 1024 + q_tiles * q_bytes + 2 * Stages * kv_bytes + combine_bytes + barriers * 8;
  static_assert(HeadDim % 16 == 0 && BlockN % 16 == 0 && HeadDim <= 256 && BlockN <= 256);
  static_assert(shared_bytes <= 232448, "more shared memory than a block can have");
  static_assert(Consumers == 2 || (Consumers == 3 && !SplitKeys));
  // A warpgroup waits for the K of its next block but one before it lets go of a V: when it takes every other block,
  // fewer stages deadlock.
  static_assert(Stages >= (SplitKeys ? 4 : 2));
};

// Named barriers 1.. (0 is __syncthreads): turns of the warpgroups, and the hand-over when keys are split.
constexpr uint32_t turn_barrier = 1, combine_full_barrier = 6, combine_empty_barrier = 7;

struct Tile {
  int m, head, batch;
  bool valid;
};

// The i-th tile of this block.
template <int BlockM>
__device__ __forceinline__ Tile tile_at(const Parameters& p, int i) {
  const int blocks = gridDim.x, block = blockIdx.x;
  int m, batch_head;
  bool valid;
  if (p.schedule == Schedule::linear) {
    const int index = i * blocks + block;
    batch_head = index / p.m_tiles;
    m = index - batch_head * p.m_tiles;
    valid = batch_head < p.batch_heads;
  } else if (p.schedule == Schedule::snake) {
    const int index = i * blocks + (i % 2 == 0 ? block : blocks - 1 - block);
    const int per_section = p.section * p.m_tiles;
    const int section = index / per_section;
    const int first_head = section * p.section;
    const int heads = min(p.section, p.batch_heads - first_head);
    valid = heads > 0;
    const int rest = index - section * per_section;
    const int from_last = valid ? rest / heads : 0;
    m = p.m_tiles - 1 - from_last;
    batch_head = first_head + rest - from_last * heads;
    valid = valid && m >= 0;
  } else {
    const int pairs = (p.m_tiles + 1) / 2;
    const int index = i / 2 * blocks + block;
    batch_head = index / pairs;
    const int from_last = index - batch_head * pairs;
    m = i % 2 == 0 ? p.m_tiles - 1 - from_last : from_last;
    valid = batch_head < p.batch_heads;
    // An odd middle tile is its own partner: the second visit is marked by a row past every limit.
    if (i % 2 == 1 && m == p.m_tiles - 1 - from_last) m = -1;
  }
  Tile tile;
  tile.m = m;
  tile.batch = batch_head / p.heads;
  tile.head = batch_head - tile.batch * p.heads;
  tile.valid = valid;
  return tile;
}

// Blocks of keys that rows [.., row_end) of the queries see.
template <int BlockN>
__device__ __forceinline__ int key_blocks(const Parameters& p, int row_end) {
  const int keys = p.causal ? min(p.seq_kv, row_end) : p.seq_kv;
  return (keys + BlockN - 1) / BlockN;
}

template <int Stages>
__device__ __forceinline__ uint32_t ring_stage(uint32_t count) { return count % Stages; }
template <int Stages>
__device__ __forceinline__ uint32_t ring_parity(uint32_t count) { return count / Stages & 1; }

template <typename C>
struct Layout {
  uint32_t q, k, v, combine, barriers;

  __device__ __forceinline__ explicit Layout(const void* raw) {
    const uint32_t base = (ptx::shared_address(raw) + 1023u) & ~1023u;
    q = base;
    k = q + C::q_tiles * C::q_bytes;
    v = k + C::stages * C::kv_bytes;
    combine = v + C::stages * C::kv_bytes;
    barriers = combine + C::combine_bytes;
  }
  __device__ __forceinline__ uint32_t q_full(int i) const { return barriers + i * 8; }
  __device__ __forceinline__ uint32_t q_empty(int i) const { return barriers + (C::q_tiles + i) * 8; }
  __device__ __forceinline__ uint32_t k_full(int s) const { return barriers + (2 * C::q_tiles + s) * 8; }
  __device__ __forceinline__ uint32_t k_empty(int s) const { return k_full(s) + C::stages * 8; }
  __device__ __forceinline__ uint32_t v_full(int s) const { return k_full(s) + 2 * C::stages * 8; }
  __device__ __forceinline__ uint32_t v_empty(int s) const { return k_full(s) + 3 * C::stages * 8; }
};

template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const Layout<C>& shared) {
  uint32_t k_count = 0, v_count = 0;
  uint32_t q_parity = 1;
  const auto load_kv = [&](const CUtensorMap* map, uint32_t tile, uint32_t full, int row, int head, int batch) {
    ptx::mbarrier_arrive_expect_tx(full, C::kv_bytes);
#pragma unroll
    for (int panel = 0; panel < C::panels; ++panel) {
      ptx::tma_load_4d(tile + panel * C::block_n * 128, map, full, panel * 64, row, head, batch, ptx::evict_last);
    }
  };
  for (int i = 0;; ++i) {
    const Tile tile = tile_at<C::block_m>(p, i);
    if (!tile.valid) return;
    if (tile.m < 0) continue;
    const int row = tile.m * C::block_m;
    const int blocks = key_blocks<C::block_n>(p, min(row + C::block_m, p.seq_q));
    const int kv_head = tile.head / p.group;
    const auto load_k = [&](int j) {
      const uint32_t stage = ring_stage<C::stages>(k_count);
      ptx::mbarrier_wait(shared.k_empty(stage), ring_parity<C::stages>(k_count) ^ 1);
      load_kv(&p.k, shared.k + stage * C::kv_bytes, shared.k_full(stage), j * C::block_n, kv_head, tile.batch);
      ++k_count;
    };
    const auto load_v = [&](int j) {
      const uint32_t stage = ring_stage<C::stages>(v_count);
      ptx::mbarrier_wait(shared.v_empty(stage), ring_parity<C::stages>(v_count) ^ 1);
      load_kv(&p.v, shared.v + stage * C::kv_bytes, shared.v_full(stage), j * C::block_n, kv_head, tile.batch);
      ++v_count;
    };
    load_k(blocks - 1);
#pragma unroll
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_wait(shared.q_empty(w), q_parity);
      ptx::mbarrier_arrive_expect_tx(shared.q_full(w), C::q_bytes);
#pragma unroll
      for (int panel = 0; panel < C::panels; ++panel) {
        ptx::tma_load_4d(shared.q + w * C::q_bytes + panel * 64 * 128, &p.q, shared.q_full(w), panel * 64,
                         row + w * 64, tile.head, tile.batch, ptx::evict_first);
      }
    }
    q_parity ^= 1;
    // Scores run one block ahead of the product with V, so K leads by one.
    for (int j = blocks - 2; j >= 0; --j) {
      load_k(j);
      load_v(j + 1);
    }
    load_v(0);
  }
}

// One consumer warpgroup: its registers, and its place in the rings.
template <typename C>
struct Consumer {
  using T = typename C::T;
  using Weights = uint32_t[C::block_n / 16][4];  // packed to 16 bits: A fragments of 16 keys each
  static constexpr int n = C::block_n, d = C::head_dim;
  static constexpr int step = C::split_keys ? 2 : 1;  // from a block to this warpgroup's next

  const Parameters& p;
  const Layout<C>& shared;
  const int group;  // of this block's consumers
  const int lane;
  float o[d / 2];
  RowState state;

  __device__ __forceinline__ Consumer(const Parameters& parameters, const Layout<C>& layout, int warp_group)
      : p(parameters), shared(layout), group(warp_group), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C::ping_pong) ptx::bar_sync(turn_barrier + group, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C::ping_pong) {
      ptx::bar_arrive(turn_barrier + (group + 1 == C::consumers ? 0 : group + 1), 256);
    }
  }

  __device__ __forceinline__ void wait_k(uint32_t count) const {
    ptx::mbarrier_wait(shared.k_full(ring_stage<C::stages>(count)), ring_parity<C::stages>(count));
  }

  // s = q k^T of the ring's K tile `count`, which has arrived; one committed group.
  __device__ __forceinline__ void issue_scores(float (&s)[n / 2], uint32_t count) const {
    const uint32_t stage = ring_stage<C::stages>(count);
    const uint64_t q = ptx::k_major_descriptor(shared.q + (C::split_keys ? 0 : group) * C::q_bytes);
    const uint64_t k = ptx::k_major_descriptor(shared.k + stage * C::kv_bytes);
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

  __device__ __forceinline__ void release_k(uint32_t count) const {
    release(shared.k_empty(ring_stage<C::stages>(count)));
  }
  __device__ __forceinline__ void release_v(uint32_t count) const {
    release(shared.v_empty(ring_stage<C::stages>(count)));
  }

  // Masks block j where its end lies past what the first row sees.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j, int first_row) const {
    const int unmasked = p.causal ? min(p.seq_kv, first_row + 1) : p.seq_kv;
    if ((j + 1) * n > unmasked) {
      const int row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
      const int first_column = j * n + lane % 4 * 2;
      const int limit0 = p.causal ? min(p.seq_kv, row + 1) : p.seq_kv;
      const int limit1 = p.causal ? min(p.seq_kv, row + 9) : p.seq_kv;
      mask_scores(s, limit0 - first_column, limit1 - first_column);
    }
  }

  // Blocks j = first, first - step, .. >= 0 of keys, whose ring positions are count, count + step, ..
  __device__ __forceinline__ void attend(int first, uint32_t count, int first_row) {
    Weights a, b;
    {
      float s[n / 2], rescale[2];
      wait_k(count);
      issue_scores(s, count);
      pass_turn();
      ptx::wgmma_wait_group<0>();
      ptx::wgmma_fence_operand(s);
      release_k(count);
      mask(s, first, first_row);
      take_block<T>(a, s, state, rescale, p.scale_log2);
    }
    int j = first - step;
    if (j >= 0) wait_k(count + step);
    for (; j >= step; j -= 2 * step, count += 2 * step) {
      advance(a, b, j, count, first_row);
      advance(b, a, j - step, count + step, first_row);
    }
    if (j >= 0) {
      advance(a, b, j, count, first_row);
      release_q();
      end(b, count + step);
    } else {
      release_q();
      end(a, count);
    }
  }

  // One block: its scores, and under its softmax the product of the block before, whose weights are `previous`.
  __device__ __forceinline__ void advance(Weights& previous, Weights& next, int j, uint32_t count, int first_row) {
    float s[n / 2], rescale[2];
    issue_scores(s, count + step);
    issue_output(previous, count);
    pass_turn();
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_fence_operand(s);
    release_k(count + step);
    mask(s, j, first_row);
    const bool kept = try_block<T>(next, s, state, p.scale_log2);
    if (!kept) take_block<T>(next, s, state, rescale, p.scale_log2);
    if (j >= step) wait_k(count + 2 * step);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
#pragma unroll
    for (int i = 0; i < n / 16; ++i) ptx::wgmma_fence_operand(previous[i]);
    release_v(count);
    if (!kept) rescale_output(o, rescale);
  }

  // The last product.
  __device__ __forceinline__ void end(Weights& last, uint32_t count) {
    issue_output(last, count);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_fence_operand(o);
    release_v(count);
  }

  __device__ __forceinline__ void release_q() const { release(shared.q_empty(C::split_keys ? 0 : group)); }

  // Blocks past what this warpgroup's rows see, which other warpgroups use: let them go by.
  __device__ __forceinline__ void skip(uint32_t count) const {
    const uint32_t stage = ring_stage<C::stages>(count), parity = ring_parity<C::stages>(count);
    ptx::mbarrier_wait(shared.k_full(stage), parity);
    release_k(count);
    ptx::mbarrier_wait(shared.v_full(stage), parity);
    release_v(count);
  }

  __device__ __forceinline__ void run() {
    const int tile_group = C::split_keys ? 0 : group;
    uint32_t count = 0, q_parity = 0;
    if constexpr (C::ping_pong) {
      if (group == C::consumers - 1) ptx::bar_arrive(turn_barrier, 256);
    }
    for (int i = 0;; ++i) {
      const Tile tile = tile_at<C::block_m>(p, i);
      if (!tile.valid) return;
      if (tile.m < 0) continue;
      const int first_row = tile.m * C::block_m + tile_group * 64;
      const int tile_blocks = key_blocks<n>(p, min((tile.m + 1) * C::block_m, p.seq_q));
      // Warpgroups that take turns take as many; otherwise each stops at what its own rows see.
      const int own_blocks = first_row < p.seq_q ? key_blocks<n>(p, min(first_row + 64, p.seq_q)) : 0;
      const int blocks = C::ping_pong ? tile_blocks : own_blocks;
      state.reset();
#pragma unroll
      for (int e = 0; e < d / 2; ++e) o[e] = 0.0f;
      ptx::mbarrier_wait(shared.q_full(tile_group), q_parity);
      q_parity ^= 1;
      if constexpr (C::split_keys) {
        if (blocks > group) {
          attend(blocks - 1 - group, count + group, first_row);
        } else {
          release_q();
        }
        count += tile_blocks;
        combine(tile, first_row);
      } else {
        for (int skipped = blocks; skipped < tile_blocks; ++skipped) skip(count++);
        if (blocks > 0) {
          attend(blocks - 1, count, first_row);
          count += blocks;
          store(tile, first_row);
        } else {
          release_q();
        }
      }
    }
  }

  // Warpgroup 1 hands its state and outputs to warpgroup 0 through shared memory (register-major: no bank conflicts).
  __device__ __forceinline__ void combine(const Tile& tile, int first_row) {
    const uint32_t mine = shared.combine + threadIdx.x % 128 * 4;
    if (group == 1) {
#pragma unroll
      for (int e = 0; e < d / 2; ++e) store_shared(mine + e * 512, o[e]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        store_shared(mine + (d / 2 + h) * 512, state.maximum[h]);
        store_shared(mine + (d / 2 + 2 + h) * 512, state.sum[h]);
      }
      ptx::bar_sync(combine_full_barrier, 256);
      ptx::bar_sync(combine_empty_barrier, 256);
    } else {
      ptx::bar_sync(combine_full_barrier, 256);
      float own[2], other[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        join(state.maximum[h], state.sum[h], load_shared(mine + (d / 2 + h) * 512),
             load_shared(mine + (d / 2 + 2 + h) * 512), own[h], other[h]);
      }
#pragma unroll
      for (int e = 0; e < d / 2; ++e) {
        o[e] = o[e] * own[e % 4 / 2] + load_shared(mine + e * 512) * other[e % 4 / 2];
      }
      ptx::bar_sync(combine_empty_barrier, 256);
      store(tile, first_row);
    }
  }

  static __device__ __forceinline__ void store_shared(uint32_t address, float value) {
    *static_cast<float*>(__cvta_shared_to_generic(address)) = value;
  }
  static __device__ __forceinline__ float load_shared(uint32_t address) {
    return *static_cast<const float*>(__cvta_shared_to_generic(address));
  }

  // Normalises and writes: the four lanes of a row exchange pairs so that each writes 16 bytes of four 8-column groups.
  __device__ __forceinline__ void store(const Tile& tile, int first_row) {
    const int quad = lane % 4;
    T* const head = static_cast<T*>(p.out) + tile.batch * p.out_batch + tile.head * p.out_head;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = finish(state, h);
      const int row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * h;
      T* const to = head + row * p.out_seq;
      const bool inside = row < p.seq_q;
#pragma unroll
      for (int g = 0; g + 4 <= d / 8; g += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = pack(T{}, o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
        }
        transpose_quad(x, quad);
        const int column = 8 * (g + quad);
        if (inside && column < p.head_dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
#pragma unroll
      for (int g = d / 8 / 4 * 4; g < d / 8; ++g) {
        const int column = 8 * g + 2 * quad;
        const uint32_t x = pack(T{}, o[4 * g + 2 * h] * factor, o[4 * g + 2 * h + 1] * factor);
        if (inside && column < p.head_dim) *reinterpret_cast<uint32_t*>(to + column) = x;
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
__global__ void __launch_bounds__(C::threads, 1) flash_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const Layout<C> shared(raw);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp == 0 && ptx::elect_sync()) {
    ptx::prefetch_tensormap(&p.q);
    ptx::prefetch_tensormap(&p.k);
    ptx::prefetch_tensormap(&p.v);
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), C::split_keys ? 8 : 4);
    }
    for (int s = 0; s < C::stages; ++s) {
      constexpr int readers = C::split_keys ? 4 : 4 * C::consumers;
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), readers);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), readers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    Consumer<C> consumer(p, shared, warp / 4);
    consumer.run();
  }
#endif
}

template <typename C>
inline Instance instance(const char* name, double relative_cost = 1.0, double relative_cost_causal = 1.0) {
  return {ptx::is_bfloat16<typename C::T> ? ScalarType::bfloat16 : ScalarType::float16,
          C::head_dim,
          C::block_m,
          C::block_n,
          C::split_keys,
          relative_cost,
          relative_cost_causal,
          {"flash_attention", name, reinterpret_cast<const void*>(&flash_kernel<C>), C::threads, C::shared_bytes}};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
