// The producer of a Hopper flash kernel for rows that TMA cannot read: it wants multiples of 16 bytes, also within a
// row. Four warps copy words of 8 or 4 bytes by cp.async.
// Included by sm90_flash.cuh, whose Layout and walk() it needs.
#pragma once

#include <cstdint>

#include "../ptx/cp_async.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/mbarrier.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// A word of Size bytes: the first `bytes` of them, zeros after.
template <int Size>
__device__ __forceinline__ void copy_word(uint32_t shared, uint64_t global, int bytes) {
  if constexpr (Size == 8) {
    ptx::cp_async_ca_8(shared, reinterpret_cast<const void*>(global), bytes);
  } else {
    ptx::cp_async_ca_4(shared, reinterpret_cast<const void*>(global), bytes);
  }
}

template <typename C>
struct Copier {
  static constexpr int in_flight = 2;  // tiles

  const Parameters& p;
  const Layout<C>& shared;
  const int warp, lane;
  uint32_t older = 0, newer = 0;  // the barriers of the tiles under way
  int pending = 0;

  __device__ __forceinline__ Copier(const Parameters& parameters, const Layout<C>& layout, int copier_warp)
      : p(parameters), shared(layout), warp(copier_warp), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    uint32_t k_count = 0, v_count = 0, q_parity = 1;
    const auto load_k = [&](int row, int head, int batch) {
      const uint32_t stage = ring_stage<C::stages>(k_count), parity = ring_parity<C::stages>(k_count) ^ 1;
      load(p.k_rows, p.seq_kv, shared.k + stage * C::k_bytes, shared.k_full(stage), shared.k_empty(stage), parity,
           C::block_n, row, head, batch);
      ++k_count;
    };
    const auto load_v = [&](int row, int head, int batch) {
      const uint32_t stage = ring_stage<C::stages>(v_count), parity = ring_parity<C::stages>(v_count) ^ 1;
      load(p.v_rows, p.seq_kv, shared.v + stage * C::v_bytes, shared.v_full(stage), shared.v_empty(stage), parity,
           C::block_n, row, head, batch);
      ++v_count;
    };
    const auto load_q = [&](int w, int row, int head, int batch) {
      load(p.q_rows, p.seq_q, shared.q + w * C::q_bytes, shared.q_full(w), shared.q_empty(w), q_parity, 64, row, head,
           batch);
      if (w == C::q_tiles - 1) q_parity ^= 1;
    };
    walk<C>(p, load_q, load_k, load_v);
    while (pending > 0) finish_oldest();
  }

  // `rows` rows of a head from `first` on.
  __device__ __forceinline__ void load(const Rows& source, int seq, uint32_t tile, uint32_t full, uint32_t empty,
                                       uint32_t parity, int rows, int first, int head, int batch) {
    if (!__all_sync(0xffffffffu, ptx::mbarrier_test_wait(empty, parity))) {
      // The consumers may need what is under way to get there.
      while (pending > 0) finish_oldest();
      ptx::mbarrier_wait(empty, parity);
      __syncwarp();
    }
    const uint64_t start = reinterpret_cast<uint64_t>(source.pointer) +
                           static_cast<uint64_t>((batch * source.batch + head * source.head + first * source.seq) * 2);
    if (p.wide_words) {
      copy<8>(start, source.seq * 2, seq - first, tile, rows);
    } else {
      copy<4>(start, source.seq * 2, seq - first, tile, rows);
    }
    ptx::cp_async_commit_group();
    if (pending == in_flight) {
      ptx::cp_async_wait_group<in_flight>();
      hand_over();
    }
    if (pending == 0) older = full;
    newer = full;
    ++pending;
  }

  // Rows from `valid` on become zeros, as do columns past head_dim. A panel's 128 bytes of a row are 128 / Size lanes.
  template <int Size>
  __device__ __forceinline__ void copy(uint64_t start, int64_t pitch, int valid, uint32_t tile, int rows) const {
    constexpr int lanes = 128 / Size, together = 32 / lanes;  // rows of a warp's instruction
    constexpr int words = C::head_dim * 2 / Size;             // of a row: what the products read
    const int first = warp * together + lane / lanes, word = lane % lanes;
    const uint32_t chunk = word * Size / 16, within = word * Size % 16;
    uint64_t from = start + static_cast<uint64_t>(first * pitch + word * Size);
#pragma unroll 4
    for (int r = first; r < rows; r += 4 * together, from += static_cast<uint64_t>(4 * together * pitch)) {
      const int bytes = r < valid ? p.head_dim * 2 - word * Size : 0;
      const uint32_t to = tile + r * 128 + (chunk ^ r % 8) * 16 + within;
#pragma unroll
      for (int k = 0; k < C::panels; ++k) {
        if (words % lanes == 0 || k < words / lanes || word < words % lanes) {
          copy_word<Size>(to + k * (rows * 128), from + k * 128, min(max(bytes - k * 128, 0), Size));
        }
      }
    }
  }

  __device__ __forceinline__ void finish_oldest() {
    if (pending > 1) {
      ptx::cp_async_wait_group<1>();
    } else {
      ptx::cp_async_wait_group<0>();
    }
    hand_over();
  }

  // This warp's part of the oldest tile has arrived.
  __device__ __forceinline__ void hand_over() {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(older);
    older = newer;
    --pending;
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
