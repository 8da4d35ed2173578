// Flash attention forward on Hopper with AttentionOptions: sequences of variable length, windows of keys, either end of
// the diagonal, logarithms of the rows' sums. It is a kernel of its own, so that the plain one does not pay for
// options.
//
// A producer thread and two consumer warpgroups of 64 query rows each, as in plain.cuh. Thread blocks are persistent
// and take the longest tiles first. Keys are counted from the first block that the tile's rows see; blocks go from the
// last to the first. The rows behind a sequence are those of the next one: their scores are masked, and their V rows
// are multiplied by weights of 0.
//
// From a tile to its stores: Consumer::run takes the tile, attend() (steps.cuh) goes through its key blocks, store()
// writes.
#pragma once

#include <cstdint>

#include "../../numeric.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/tma.cuh"
#include "../../ptx/wgmma.cuh"
#include "../span.cuh"
#include "ring.cuh"
#include "softmax.cuh"
#include "steps.cuh"
#include "varlen.h"

namespace cuda_llm_ops::cuda::sm90::varlen {

template <typename T, int HeadDim, int BlockN, int Stages, bool PingPong, int ValueDim>
struct Varlen : flash::Shape<T, HeadDim, BlockN, 2, Stages, ValueDim>, flash::Registers<2, 24, 240> {
  static constexpr bool ping_pong = PingPong;
  static constexpr int own_bytes = 8 * 16;  // a Band for each consumer warp
  static constexpr int shared_bytes = flash::ring_bytes<Varlen>;
  static_assert(HeadDim % 32 == 0 && ValueDim % 32 == 0, "store() writes four 8-column groups at a time");
  static_assert(Stages >= 2 && shared_bytes <= flash::kMaxSharedBytes);
};

struct Tile {
  bool valid;  // false: no tile is left
  int row;     // its first query, of the sequence; -1: no row, to be passed over
  int head, batch;
  int blocks;          // of keys, from first_key on
  int first_key;       // row in K and V
  int seq_kv;          // keys from first_key to the sequence's end
  int low, high;       // row r sees keys r + low <= j < r + high from first_key on
  int first_q, seq_q;  // the sequence in Q
};

// The i-th tile of this thread block: longest first over a section of heads; every other round of the grid runs
// backwards.
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
  tile.row = (p.m_tiles - 1 - from_last) * kBlockM;
  const attention::Span span = attention::span_of(p.options, tile.batch, p.seq_q, p.seq_kv);
  tile.first_q = span.first_q;
  tile.seq_q = span.seq_q;
  const int first = max(0, tile.row + span.low) / BlockN * BlockN;
  const int end = min(span.seq_kv, min(tile.row + kBlockM, span.seq_q) - 1 + span.high);
  tile.blocks = max(0, end - first + BlockN - 1) / BlockN;
  tile.first_key = span.first_kv + first;
  tile.seq_kv = span.seq_kv - first;
  tile.low = span.low - first;
  tile.high = span.high - first;
  if (tile.row >= span.seq_q) tile.row = -1;
  return tile;
}

// One thread's work.
template <typename C>
__device__ __forceinline__ void produce(const Parameters& p, const flash::RingLayout<C>& shared) {
  uint32_t k_count = 0, v_count = 0, q_parity = 1;
  for (int i = 0;; ++i) {
    const Tile tile = tile_at<C::block_n>(p, i);
    if (!tile.valid) return;
    if (tile.row < 0 || tile.blocks == 0) continue;
    const int batch = p.options.cu_seqlens_q == nullptr ? tile.batch : 0;
    const int kv_head = tile.head / p.group;
    const auto load = [&](const CUtensorMap* map, int panels, uint32_t to, uint32_t full, uint32_t empty,
                          uint32_t count, int j) {
      ptx::mbarrier_wait(empty, flash::ring_parity<C::stages>(count) ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, panels * (C::block_n * flash::kPanelBytes));
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        ptx::tma_load_4d(to + panel * C::block_n * flash::kPanelBytes, map, full, panel * 64,
                         tile.first_key + j * C::block_n, kv_head, batch, ptx::evict_last);
      }
    };
    const auto load_k = [&](int j) {
      const uint32_t stage = flash::ring_stage<C::stages>(k_count);
      load(&p.k, C::panels, shared.k + stage * C::k_bytes, shared.k_full(stage), shared.k_empty(stage), k_count++, j);
    };
    const auto load_v = [&](int j) {
      const uint32_t stage = flash::ring_stage<C::stages>(v_count);
      load(&p.v, C::v_panels, shared.v + stage * C::v_bytes, shared.v_full(stage), shared.v_empty(stage), v_count++, j);
    };
    load_k(tile.blocks - 1);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      ptx::mbarrier_wait(shared.q_empty(w), q_parity);
      ptx::mbarrier_arrive_expect_tx(shared.q_full(w), C::q_bytes);
#pragma unroll
      for (int panel = 0; panel < C::panels; ++panel) {
        ptx::tma_load_4d(shared.q + w * C::q_bytes + panel * 64 * flash::kPanelBytes, &p.q, shared.q_full(w),
                         panel * 64, tile.first_q + tile.row + w * 64, tile.head, batch, ptx::evict_first);
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

template <typename C>
struct VarlenConsumer : flash::Steps<C, VarlenConsumer<C>, flash::RingLayout<C>, Parameters> {
  using Base = flash::Steps<C, VarlenConsumer<C>, flash::RingLayout<C>, Parameters>;
  using Base::Base;
  using Base::group, Base::lane, Base::n, Base::o, Base::p, Base::shared, Base::state, Base::value_dim;
  using typename Base::T;
  int blocks;  // of the tile

  // What mask() needs of a tile, in shared memory: the accumulators leave no registers for it.
  struct Band {
    int first_row;  // of this warpgroup's 64, in the sequence
    int seq_kv, low, high;
  };
  __device__ __forceinline__ volatile Band& band() const {
    return *static_cast<volatile Band*>(__cvta_shared_to_generic(shared.own + threadIdx.x / 32 * 16));
  }

  __device__ __forceinline__ int next_in_turn() const { return 1 - group; }

  // Masks key block j if one of this warpgroup's rows does not see all of it.
  __device__ __forceinline__ void mask(float (&s)[n / 2], int j, int /*first_row*/) const {
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
          if (column >= end || column < begin) s[4 * g + 2 * h + parity] = flash::kMinusInfinity;
        }
      }
    }
  }

  __device__ __forceinline__ void run() {
    uint32_t count = 0, q_parity = 0;
    this->begin_turns();
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
      for (int e = 0; e < value_dim / 2; ++e) o[e] = 0.0f;
      if (blocks > 0) {
        ptx::mbarrier_wait(shared.q_full(group), q_parity);
        q_parity ^= 1;
        this->attend(blocks - 1, count, 0);
        count += blocks;
      }
      store(tile_at<n>(p, i));  // computed again, because registers are short
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
        p.options
            .lse[tile.batch * p.options.lse_stride_batch + tile.head * p.options.lse_stride_head + tile.first_q + row] =
            state.maximum[h] == flash::kMinusInfinity ? flash::kMinusInfinity
                                                      : attention::log_sum_exp(state.maximum[h], sum);
      }
      T* const to = head + (tile.first_q + row) * p.out_seq;
#pragma unroll
      for (int g = 0; g + 4 <= value_dim / 8; g += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = pack_pair<T>(o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
        }
        flash::transpose_quad(x, quad);
        const int column = 8 * (g + quad);
        if (inside && column < p.value_dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(C::threads, 1) flash_varlen_kernel(const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char raw[];
  const flash::RingLayout<C> shared(raw);
  const int warp = flash::warp_of_block();
  if (warp == 0 && ptx::elect_sync()) {
    ptx::prefetch_tensormap(&p.q);
    ptx::prefetch_tensormap(&p.k);
    ptx::prefetch_tensormap(&p.v);
    for (int w = 0; w < C::q_tiles; ++w) {
      ptx::mbarrier_init(shared.q_full(w), 1);
      ptx::mbarrier_init(shared.q_empty(w), 4);
    }
    for (int s = 0; s < C::stages; ++s) {
      ptx::mbarrier_init(shared.k_full(s), 1);
      ptx::mbarrier_init(shared.k_empty(s), 4 * C::consumers);
      ptx::mbarrier_init(shared.v_full(s), 1);
      ptx::mbarrier_init(shared.v_empty(s), 4 * C::consumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // Thread blocks of the next grid start as those of this grid end, one by one.
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (warp >= 4 * C::consumers) {
    ptx::setmaxnreg_dec<C::producer_registers>();
    if (warp == 4 * C::consumers && ptx::elect_sync()) produce<C>(p, shared);
  } else {
    ptx::setmaxnreg_inc<C::consumer_registers>();
    VarlenConsumer<C>(p, shared, warp / 4).run();
  }
#endif
}

template <typename T, int HeadDim, int BlockN, int Stages, bool PingPong, int ValueDim = HeadDim>
Instance instance(attention::TypedName name) {
  using C = Varlen<T, HeadDim, BlockN, Stages, PingPong, ValueDim>;
  constexpr ScalarType type = ptx::is_bfloat16<T> ? ScalarType::bfloat16 : ScalarType::float16;
  return {
      .type = type,
      .head_dim = HeadDim,
      .value_dim = ValueDim,
      .block_n = BlockN,
      .kernel = {"flash_attention", name.of(type), reinterpret_cast<const void*>(&flash_varlen_kernel<C>), C::threads,
                 C::shared_bytes},
  };
}

}  // namespace cuda_llm_ops::cuda::sm90::varlen
