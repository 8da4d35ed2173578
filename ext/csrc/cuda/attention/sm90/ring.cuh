// What all Hopper flash kernels have in common: the facts that a configuration states, and the rings of K and V tiles
// in shared memory through which the producer feeds the consumers.
//
// Shared memory, in this order:
//   Q          [slot][warpgroup] tiles of 64 rows
//   K, V       [stage] tiles of block_n rows, each; ring position `count` is stage count % stages
//   own        whatever a variant needs besides, C::own_bytes
//   barriers   q_full, q_empty per tile of queries; k_full, k_empty, v_full, v_empty per stage; then the variant's own
//
// "full" barriers complete when TMA has written a tile, "empty" ones when every consumer has read it.
#pragma once

#include <cstdint>

#include "../../ptx/cluster.cuh"
#include "../../ptx/mbarrier.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

constexpr int kMaxSharedBytes = 232448;  // of a thread block
constexpr int kPanelBytes = 128;         // of a row in a panel: 64 columns, the span of TMA's widest swizzle

// The facts of a configuration. Its own members replace these, which hold for most.
template <typename T_, int HeadDim, int BlockN, int Consumers, int Stages, int ValueDim = HeadDim>
struct Shape {
  using T = T_;
  static constexpr int head_dim = HeadDim, block_n = BlockN, consumers = Consumers, stages = Stages;
  static constexpr int value_dim = ValueDim;  // columns of V and of the output
  static constexpr int least_head_dim = ValueDim < HeadDim ? ValueDim + 1 : 0;
  static constexpr int threads = Consumers * 128 + 128;  // consumer warpgroups, and one of the producer
  static constexpr int steps = (HeadDim + 15) / 16;      // products of 16 columns that the scores take
  static constexpr int v_columns = ValueDim;             // columns of the product of weights and V
  // Tiles in panels of 64 columns. Bytes of the queries of one warpgroup, and of one stage of K and of V.
  static constexpr int panels = (HeadDim + 63) / 64, v_panels = (ValueDim + 63) / 64;
  static constexpr int q_bytes = panels * 64 * kPanelBytes;
  static constexpr int k_bytes = panels * BlockN * kPanelBytes, v_bytes = v_panels * BlockN * kPanelBytes;
  static constexpr int cluster = 1;
  static constexpr bool ping_pong = true, split_keys = false, cross_tile = false, stream_k = false, realigned = false;
  static constexpr bool product_sums = false;  // the product with V also sums the weights
  static constexpr int q_slots = 1, q_tiles = Consumers, block_m = 64 * Consumers;
  static constexpr int own_bytes = 0, own_barriers = 0;
  static constexpr int alignment = 1024;
  static constexpr int realigned_tile_bytes = 0, part_bytes = 0;
  static_assert(BlockN % 16 == 0 && ValueDim <= HeadDim && HeadDim <= 256 && BlockN <= 256);
};

// Registers of a thread after setmaxnreg. All warpgroups together must not ask for more than the launch gave them, a
// multiple of 8 for each thread: setmaxnreg would wait for ever.
template <int Consumers, int Producer, int Consumer>
struct Registers {
  static constexpr int producer_registers = Producer, consumer_registers = Consumer;
  static_assert(Producer + Consumers * Consumer <= 65536 / (Consumers * 128 + 128) / 8 * 8 * (Consumers + 1));
};

// Bytes of dynamic shared memory for the layout above.
template <typename C>
constexpr int ring_bytes = C::alignment + C::q_slots * C::q_tiles * C::q_bytes + C::stages * (C::k_bytes + C::v_bytes) +
                           C::own_bytes + (2 * C::q_tiles + 4 * C::stages + C::own_barriers) * 8;

template <int Stages>
__device__ __forceinline__ uint32_t ring_stage(uint32_t count) {
  return count % Stages;
}
template <int Stages>
__device__ __forceinline__ uint32_t ring_parity(uint32_t count) {
  return count / Stages & 1;
}

// Shared addresses of the above.
template <typename C>
struct RingLayout {
  uint32_t q, k, v, own, barriers;

  __device__ __forceinline__ explicit RingLayout(const void* memory) {
    q = (ptx::shared_address(memory) + (C::alignment - 1u)) & ~(C::alignment - 1u);
    k = q + C::q_slots * C::q_tiles * C::q_bytes;
    v = k + C::stages * C::k_bytes;
    own = v + C::stages * C::v_bytes;
    barriers = own + C::own_bytes;
  }
  __device__ __forceinline__ uint32_t q_full(int i) const { return barriers + i * 8; }
  __device__ __forceinline__ uint32_t q_empty(int i) const { return barriers + (C::q_tiles + i) * 8; }
  __device__ __forceinline__ uint32_t k_full(int s) const { return barriers + (2 * C::q_tiles + s) * 8; }
  __device__ __forceinline__ uint32_t k_empty(int s) const { return k_full(s) + C::stages * 8; }
  __device__ __forceinline__ uint32_t v_full(int s) const { return k_full(s) + 2 * C::stages * 8; }
  __device__ __forceinline__ uint32_t v_empty(int s) const { return k_full(s) + 3 * C::stages * 8; }
  __device__ __forceinline__ uint32_t own_barrier(int i) const { return k_full(0) + (4 * C::stages + i) * 8; }
  __device__ __forceinline__ uint32_t end_of_barriers() const { return own_barrier(C::own_barriers); }
};

// The thread block's place in its cluster.
template <typename C>
__device__ __forceinline__ int cluster_rank() {
  if constexpr (C::cluster == 1) return 0;
  return static_cast<int>(ptx::cluster_ctarank());
}

// The same in all lanes of a warp, and known to be so by the compiler.
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
