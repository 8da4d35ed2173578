// Parameters and compile-time shape of the mma.sync flash kernels.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda::flash_mma {

// Offsets within a tensor fit in 31 bits, so 32-bit strides do.
struct Strides {
  int32_t batch, head, seq;
};

struct Parameters {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  Strides q_stride, k_stride, v_stride, out_stride;
  int32_t heads, group;  // query heads; query heads a kv head
  int32_t seq_q, seq_kv, head_dim;
  int32_t row_blocks;            // blocks of C::rows query rows
  int32_t batch_heads, section;  // batch * heads; how many of them are worked on together
  float scale_log2;              // scale * log2(e), never 0
  bool causal;
  bool out_aligned;  // rows of out are whole, aligned 16-byte chunks
};

// In place of AttentionOptions, for kernels without.
struct NoOptions {};

// How a kernel works, a sum of:
enum : unsigned {
  no_ways = 0,
  q_in_registers = 1,  // the queries stay in registers
  realigns = 2,        // for rows that do not begin on multiples of 16 bytes
  takes_options = 4,   // AttentionOptions
};

template <typename Element, int HeadDim, int Warps, int RowTiles, int BlockN, unsigned Ways>
struct Config {
  using T = Element;
  static constexpr bool q_registers = Ways & q_in_registers, realigned = Ways & realigns;
  static constexpr bool varlen = Ways & takes_options;
  static constexpr int head_dim = HeadDim, warps = Warps, row_tiles = RowTiles, block_n = BlockN;

  static constexpr int threads = Warps * 32;
  static constexpr int warp_rows = RowTiles * 16;
  static constexpr int rows = Warps * warp_rows;
  static constexpr int chunks = HeadDim / 8;  // 16-byte chunks of a row
  // If head_dim is 1 more than a multiple of 8, an unaligned row touches no more chunks than an aligned one.
  static constexpr int max_head_dim =
      realigned && Warps == 4 && RowTiles == 2 && HeadDim % 16 == 8 ? HeadDim - 7 : HeadDim;
  static constexpr int raw_chunks = realigned ? (2 * max_head_dim + 14 + 15) / 16 : chunks;  // that may cover a row
  static constexpr int pitch = (raw_chunks | 1) * 16;                                        // bytes
  static constexpr int group_bytes = 8 * pitch + (realigned ? 16 : 0);  // of 8 rows; rows 8 apart: different banks
  static constexpr int tile_bytes = BlockN / 8 * group_bytes;           // of a block of K or V
  static constexpr int query_bytes = rows / 8 * group_bytes;
  static constexpr bool shift_ahead = realigned && Warps == 8;  // shifts a block while another is computed
  static constexpr int ahead = shift_ahead ? 2 : 1;             // blocks in flight
  static constexpr int stages = ahead + 1;
  // Sums of weights and the count of steps wait in shared memory if the accumulators take all registers.
  static constexpr bool sums_in_shared = (RowTiles == 2 && HeadDim >= 128) || (q_registers && HeadDim >= 160);
  static constexpr int ring_bytes = stages * 2 * tile_bytes;
  static constexpr int shared_bytes = query_bytes + ring_bytes + (sums_in_shared ? threads * (RowTiles * 8 + 4) : 0);

  static_assert(HeadDim % 8 == 0 && BlockN % 32 == 0);
  static_assert(!realigned || Warps == 2 || Warps == 4 || Warps == 8);
  static_assert(!varlen || !q_registers, "a warp that skips the first block would have no Q");
};

}  // namespace cuda_llm_ops::cuda::flash_mma
