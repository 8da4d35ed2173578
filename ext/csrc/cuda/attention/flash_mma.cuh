// flash_attention for 16-bit types on any GPU from sm_80: FlashAttention-2 (Dao, arXiv 2307.08691) on mma.sync.
//
//   block = Warps warps, each with its own 16 * RowTiles query rows; one (batch, head) and rows [first, first + kRows)
//   keys pass by in blocks of BlockN, in ascending order
//
//             global --cp.async--> Q rows of the warp (once)        each warp its own rows: no block barrier
//             global --cp.async--> ring of K and V blocks in shared memory, kStages deep, every thread loads
//             shared --ldmatrix--> fragments --mma.sync--> S = Q K^T (registers)
//             S --online softmax (exp2)--> P (registers, 16-bit)
//             shared --ldmatrix.trans--> V fragments --mma.sync--> O += P V (registers)
//
//   step j:   wait for own cp.async of block j (Realign with 8 warps: j + 1, and so on)
//             __syncthreads()    everybody's copies are visible; everybody is done with block j - 1
//             issue cp.async of block j + 1 (j + 2) into the stage that block j - 1 used
//             S, softmax, P V of block j
//             (Realign with 8 warps: shift block j + 1 in place, before or after that; the halves of the block differ in
//              the order, so that the shifting of one runs under the products of the other. With 4 warps: shift block j
//              before, __syncthreads(); another block of the multiprocessor fills the pause.)
//
// One barrier a step. Shared memory rows are padded to an odd number of 16-byte chunks: the eight rows of an 8x8 matrix
// then start in different banks, whatever the column, as an XOR swizzle would make them, but every address of a
// thread is a base plus a compile-time offset.
//
// Realign: rows that do not start at multiples of 16 bytes (head_dim 129) cannot be copied by cp.async as they should
// lie in shared memory. They are copied as the aligned 16-byte chunks that cover them, one chunk more than the row
// needs, and moved to the left in place by their misalignment, each row by a few lanes of one warp. What a chunk holds
// to the right of the row becomes zeros; what it holds to the left lies in the same 16
// aligned bytes as the row's first element, hence in the same allocation, and is shifted out.
//
// General: with AttentionOptions, in instances of their own, so that the plain ones pay nothing. Keys are counted from the
// first block that the block's rows see, and the sequence's lengths are the block's own (span.cuh). Scores are scaled
// before they are masked, which takes any scale.
//
// Not-finite values: as softmax in IEEE arithmetic, and a row whose scores are all -inf gives 0 times V as
// scaled_dot_product_attention does. Keys that causality hides take no part, but a hidden V row of the same block as
// a visible one is multiplied by 0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../../kernels.h"
#include "../numeric.cuh"
#include "../ptx/cp_async.cuh"
#include "../ptx/cp_async_ignore.cuh"
#include "../ptx/ex2.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../ptx/mma_sync.cuh"
#include "../ptx/mma_sync_m16n8k8.cuh"
#include "../ptx/shared_address.cuh"
#include "../ptx/special_registers.cuh"
#include "span.cuh"

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
  int32_t heads, group;              // query heads; query heads a kv head
  int32_t seq_q, seq_kv, head_dim;
  int32_t row_blocks;                // blocks of kRows query rows
  int32_t pairs, section;            // batch * heads; how many of them are worked on together
  float scale_log2;                  // scale * log2(e), never 0
  bool causal;
  bool out_aligned;                  // rows of out are whole, aligned 16-byte chunks
};

template <typename Element, int HeadDim_, int Warps_, int RowTiles_, int BlockN_, bool Realign_, bool QInRegisters_,
          bool General_ = false>
struct Config {
  using T = Element;
  static constexpr bool General = General_;
  static constexpr int HeadDim = HeadDim_, Warps = Warps_, RowTiles = RowTiles_, BlockN = BlockN_;
  static constexpr bool Realign = Realign_, QInRegisters = QInRegisters_;

  static constexpr int kThreads = Warps * 32;
  static constexpr int kWarpRows = RowTiles * 16;
  static constexpr int kRows = Warps * kWarpRows;
  static constexpr int kChunks = HeadDim / 8;                       // 16-byte chunks of a row
  // Where head_dim is 1 more than a multiple of 8, an unaligned row touches no more chunks than an aligned one.
  static constexpr int kMaxHeadDim = Realign && Warps == 4 && RowTiles == 2 && HeadDim % 16 == 8 ? HeadDim - 7 : HeadDim;
  static constexpr int kRawChunks = Realign ? (2 * kMaxHeadDim + 14 + 15) / 16 : kChunks;  // that may cover a row
  static constexpr int kPitch = (kRawChunks | 1) * 16;              // bytes
  static constexpr int kGroup = 8 * kPitch + (Realign ? 16 : 0);    // bytes of 8 rows; rows 8 apart: different banks
  static constexpr int kTile = BlockN / 8 * kGroup;                 // bytes of a block of K or V
  static constexpr int kQueries = kRows / 8 * kGroup;
  static constexpr bool kShiftAhead = Realign && Warps == 8;        // shift a block while another is computed
  static constexpr int kAhead = kShiftAhead ? 2 : 1;                // blocks in flight
  static constexpr int kStages = kAhead + 1;
  // Sums of weights and the count of steps wait in shared memory where the accumulators take all registers.
  static constexpr bool kSumsInShared = (RowTiles == 2 && HeadDim >= 128) || (QInRegisters && HeadDim >= 160);
  static constexpr int kRing = kStages * 2 * kTile;
  static constexpr int kShared = kQueries + kRing + (kSumsInShared ? kThreads * (RowTiles * 8 + 4) : 0);

  static_assert(HeadDim % 8 == 0 && BlockN % 32 == 0);
  static_assert(!Realign || Warps == 4 || Warps == 8);
  static_assert(!General || !QInRegisters, "a warp that skips the first block would have no Q");
};

__device__ __forceinline__ uint32_t row_offset(int row, int group, int pitch) {
  return static_cast<uint32_t>((row >> 3) * group + (row & 7) * pitch);
}

// How the rows of a block of `Rows` rows are dealt to `Threads` threads for copying: kLanes lanes side by side in a row,
// each with every kLanes-th chunk, as long as whole rounds are left; the odd chunks of all rows together at the end.
template <typename C, int Rows, int Threads>
struct Deal {
  static constexpr int kLanes = C::kRawChunks < 8 ? 4 : 8;
  static constexpr int kRowsAtOnce = Threads / kLanes;
  static constexpr int kPasses = (Rows + kRowsAtOnce - 1) / kRowsAtOnce;
  static constexpr int kRounds = C::kRawChunks / kLanes;
  static constexpr int kOdd = C::kRawChunks % kLanes;
  static_assert(kPasses * kRowsAtOnce == Rows);
};

// Copies the first `bytes` (0 to 16, even) of an aligned chunk, asynchronously, and fills with zeros. Copying a part of a
// chunk counts as reading it whole, so where it reaches past `end`, the end of what is certainly the tensor's, elements
// are copied instead.
__device__ __forceinline__ void copy_chunk(uint32_t to, const char* from, int bytes, const char* end) {
  if (bytes > 0 && bytes < 16 && from + 16 > end) {
    auto* const words = static_cast<uint32_t*>(__cvta_shared_to_generic(to));
    const auto* const elements = reinterpret_cast<const uint16_t*>(from);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 4 * i < bytes ? elements[2 * i] : 0;
      const uint32_t high = 4 * i + 2 < bytes ? elements[2 * i + 1] : 0;
      words[i] = low | high << 16;
    }
  } else {
    ptx::cp_async_cg_16(to, from, bytes);
  }
}

// Copies rows of head_dim elements into shared memory, asynchronously, but for the odd chunks. `from` is the block's
// first row in global memory, `rows` how many rows exist: the others, and the columns at or past head_dim, become zeros.
template <typename C, int Rows, int Threads>
__device__ __forceinline__ void copy_rounds(uint32_t shared, const char* from, int stride_bytes, int rows, int head_dim,
                                            int thread) {
  using D = Deal<C, Rows, Threads>;
  const int lane = thread % D::kLanes;
  const int row0 = thread / D::kLanes;
  const char* const begin = from + static_cast<int64_t>(row0) * stride_bytes + lane * 16;
  const uint32_t to = shared + lane * 16;
  // The aligned chunks that cover an unaligned row: those before its last 16 bytes are whole, wherever it starts.
  if (!C::Realign || head_dim * 2 >= D::kRounds * D::kLanes * 16) {
#pragma unroll
    for (int pass = 0; pass < D::kPasses; ++pass) {
      const int row = row0 + pass * D::kRowsAtOnce;
      auto address = reinterpret_cast<uintptr_t>(begin + static_cast<int64_t>(pass * D::kRowsAtOnce) * stride_bytes);
      if constexpr (C::Realign) address &= ~uintptr_t{15};
      const uint32_t to_row = to + row_offset(row, C::kGroup, C::kPitch);
#pragma unroll
      for (int round = 0; round < D::kRounds; ++round) {
        const bool nothing = row >= rows || (!C::Realign && (lane + round * D::kLanes) * 8 >= head_dim);
        ptx::cp_async_cg_16_unless(nothing, to_row + round * D::kLanes * 16,
                                   reinterpret_cast<const char*>(address) + round * D::kLanes * 16);
      }
    }
  } else {
    const char* const end = from + static_cast<int64_t>(rows - 1) * stride_bytes + head_dim * 2;
#pragma unroll 1
    for (int row = row0; row < Rows; row += D::kRowsAtOnce) {
      const auto address = reinterpret_cast<uintptr_t>(from + static_cast<int64_t>(row) * stride_bytes + lane * 16);
      const char* const of_row = reinterpret_cast<const char*>(address & ~uintptr_t{15});
      const int left = row < rows ? head_dim * 2 + static_cast<int>(address & 15) - lane * 16 : 0;
#pragma unroll 1
      for (int at = 0; at < D::kRounds * D::kLanes * 16; at += D::kLanes * 16) {
        copy_chunk(to + row_offset(row, C::kGroup, C::kPitch) + at, of_row + at, min(16, max(0, left - at)), end);
      }
    }
  }
}

// The odd chunks of the rows: `index` counts them, row by row.
template <typename C, int Rows, int Threads>
__device__ __forceinline__ void copy_odd(uint32_t shared, const char* from, int stride_bytes, int rows, int head_dim,
                                         int index) {
  using D = Deal<C, Rows, Threads>;
  const int row = index / D::kOdd;
  const int chunk = D::kRounds * D::kLanes + index % D::kOdd;
  const auto address = reinterpret_cast<uintptr_t>(from + static_cast<int64_t>(row) * stride_bytes);
  const uint32_t to = shared + row_offset(row, C::kGroup, C::kPitch) + chunk * 16;
  if constexpr (C::Realign) {
    const int left = row < rows ? head_dim * 2 + static_cast<int>(address & 15) - chunk * 16 : 0;
    copy_chunk(to, reinterpret_cast<const char*>(address & ~uintptr_t{15}) + chunk * 16, min(16, max(0, left)),
               from + static_cast<int64_t>(rows - 1) * stride_bytes + head_dim * 2);
  } else {
    ptx::cp_async_cg_16_unless(row >= rows || chunk * 8 >= head_dim, to,
                               reinterpret_cast<const char*>(address) + chunk * 16);
  }
}

// Moves `Count` chunks from `row` on left by 4 * Words + (odd ? 2 : 0) bytes, the last first; `after` is what the chunk
// behind them holds. Chunks from `valid` on are not written, those past `readable` count as zeros; the first Always are
// both valid and readable.
template <int Count, int Always, int Words, int Unroll>
__device__ __forceinline__ void shift_chunks(uint4* row, int valid, int readable, bool odd, uint4 after) {
  const uint32_t select = odd ? 0x5432u : 0x3210u;
#pragma unroll Unroll
  for (int chunk = Count - 1; chunk >= 0; --chunk) {
    uint4 low = make_uint4(0, 0, 0, 0);
    if (chunk < Always || chunk <= readable) low = row[chunk];
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, after.x, after.y, after.z, after.w};
    uint32_t moved[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      moved[i] = __byte_perm(words[i + Words], words[i + Words + 1 < 8 ? i + Words + 1 : 7], select);
    }
    if (chunk < Always || chunk < valid) row[chunk] = make_uint4(moved[0], moved[1], moved[2], moved[3]);
    after = low;
  }
}

// Shifts one row in place by `shift` bytes to the left; `Parts` lanes of the warp share a row. The whole warp calls.
template <typename C, int Parts>
__device__ __forceinline__ void realign_row(unsigned char* bytes, int shift, int part) {
  constexpr int kEach = (C::kChunks + Parts - 1) / Parts;
  constexpr int kInLast = C::kChunks - (Parts - 1) * kEach;
  constexpr int kAlways = kInLast > 0 ? kInLast : 0;
  constexpr int kUnroll = C::kShiftAhead ? 3 : kEach;  // as registers allow
  uint4* const row = reinterpret_cast<uint4*>(bytes) + part * kEach;
  const int valid = min(kEach, C::kChunks - part * kEach);
  const int readable = min(valid, C::kRawChunks - 1 - part * kEach);
  const uint4 after = readable == kEach ? row[kEach] : make_uint4(0, 0, 0, 0);
  __syncwarp();  // before the next lane overwrites it
  const bool odd = shift & 2;
  // Rows of a warp are 8 apart: where rows are dense they share one misalignment, and the warp takes one branch.
  switch (shift >> 2) {
    case 0:
      if (odd) shift_chunks<kEach, kAlways, 0, kUnroll>(row, valid, readable, odd, after);
      break;
    case 1: shift_chunks<kEach, kAlways, 1, kUnroll>(row, valid, readable, odd, after); break;
    case 2: shift_chunks<kEach, kAlways, 2, kUnroll>(row, valid, readable, odd, after); break;
    default: shift_chunks<kEach, kAlways, 3, kUnroll>(row, valid, readable, odd, after); break;
  }
}

// How far a row's first element lies behind a multiple of 16 bytes.
__device__ __forceinline__ int misalignment(const void* tensor, int element) {
  return static_cast<int>((static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tensor)) +
                           2u * static_cast<uint32_t>(element)) & 15u);
}

// Realigns a block of K and of V: warp w takes the rows r with r % 8 = w (and w + Warps). `k` and `v` are the elements
// at which the block's first rows start.
template <typename C>
__device__ __forceinline__ void realign_block(unsigned char* keys, const Parameters& p, int k, int v, int warp,
                                              int lane) {
  constexpr int kOctets = C::BlockN / 8;
  constexpr int kParts = 32 / (2 * kOctets);
  static_assert(kParts >= 1 && kParts * 2 * kOctets == 32);
  const bool is_value = lane / kOctets % 2;
  const int part = lane / (2 * kOctets);
  const void* tensor = is_value ? p.v : p.k;
  const int stride = is_value ? p.v_stride.seq : p.k_stride.seq;
  const int first = is_value ? v : k;
#pragma unroll
  for (int residue = 0; residue < 8; residue += C::Warps) {
    const int row = lane % kOctets * 8 + residue + warp;
    realign_row<C, kParts>(keys + (is_value ? C::kTile : 0) + row_offset(row, C::kGroup, C::kPitch),
                           misalignment(tensor, first + row * stride), part);
  }
}

// Which rows of which (batch, head) pair: sections of pairs one after the other, in a section the rows that see the most
// keys first.
struct Tile {
  int batch, head, row_block;

  __device__ __forceinline__ static Tile of(const Parameters& p, int index) {
    const int first_pair = index / (p.section * p.row_blocks) * p.section;
    const int rest = index - first_pair * p.row_blocks;
    const int section = min(p.section, p.pairs - first_pair);
    const int pair = first_pair + rest % section;
    return {pair / p.heads, pair % p.heads, p.row_blocks - 1 - rest / section};
  }
};

constexpr float kSlack = 8.0f;  // weights up to 2^8 fit float16 and lose nothing in float32 sums

struct Plan {
  int k_offset, v_offset, out_offset;  // elements
  int block_row, blocks;
  // General alone. The keys count from the first that is copied, and row r sees those from r + low to before r + high.
  int seq_q, seq_kv, low, high, lse_offset;
};

struct NoOptions {};
template <typename C>
using OptionsOf = std::conditional_t<C::General, AttentionOptions, NoOptions>;

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kThreads >= 256 ? 1 : 2)
    kernel(const __grid_constant__ Parameters p, const __grid_constant__ OptionsOf<C> options) {
  using T = typename C::T;
  constexpr int kRowTiles = C::RowTiles;
  constexpr int kColumns = C::BlockN / 8;    // 8-wide column tiles of S
  constexpr int kOutTiles = C::HeadDim / 8;  // 8-wide column tiles of O
  constexpr int kSteps = C::HeadDim / 16;    // whole k16 steps of Q K^T
  constexpr bool kHalfStep = C::HeadDim % 16 != 0;

  // What the block's tile is, in shared memory: the accumulators leave no registers for it. Whatever a step needs is
  // read or computed afresh (see special_registers.cuh).
  __shared__ volatile Plan plan;
  extern __shared__ __align__(128) unsigned char shared[];
  unsigned char* const ring = shared + C::kQueries;
  const auto queries_of_sequence = [&] {
    if constexpr (C::General) return plan.seq_q;
    else return p.seq_q;
  };
  const auto keys_of_sequence = [&] {
    if constexpr (C::General) return plan.seq_kv;
    else return p.seq_kv;
  };
  const uint32_t ring_address = ptx::shared_address(ring);

  const auto copy_block = [&](int block, int k_offset, int v_offset, int seq_kv) {
    const uint32_t stage = ring_address + block % C::kStages * (2 * C::kTile);
    const int thread = ptx::fresh_tid_x();
    const int row = block * C::BlockN;
    const int rows = seq_kv - row;
    const char* const k = reinterpret_cast<const char*>(static_cast<const T*>(p.k) + (k_offset + row * p.k_stride.seq));
    const char* const v = reinterpret_cast<const char*>(static_cast<const T*>(p.v) + (v_offset + row * p.v_stride.seq));
    copy_rounds<C, C::BlockN, C::kThreads>(stage, k, p.k_stride.seq * 2, rows, p.head_dim, thread);
    copy_rounds<C, C::BlockN, C::kThreads>(stage + C::kTile, v, p.v_stride.seq * 2, rows, p.head_dim, thread);
    constexpr int kOddChunks = Deal<C, C::BlockN, C::kThreads>::kOdd * C::BlockN;  // of K, and of V
    if constexpr (kOddChunks > 0) {
#pragma unroll
      for (int first = 0; first < 2 * kOddChunks; first += C::kThreads) {
        const int index = first + thread;
        if (2 * kOddChunks % C::kThreads != 0 && index >= 2 * kOddChunks) continue;
        const bool is_value = index >= kOddChunks;
        copy_odd<C, C::BlockN, C::kThreads>(stage + (is_value ? C::kTile : 0), is_value ? v : k,
                                            (is_value ? p.v_stride.seq : p.k_stride.seq) * 2, rows, p.head_dim,
                                            is_value ? index - kOddChunks : index);
      }
    }
  };
  const auto realign = [&](int block) {
    const int thread = ptx::fresh_tid_x();
    realign_block<C>(ring + block % C::kStages * (2 * C::kTile), p,
                     plan.k_offset + block * C::BlockN * p.k_stride.seq,
                     plan.v_offset + block * C::BlockN * p.v_stride.seq, thread / 32, thread % 32);
  };

  {
    const Tile tile = Tile::of(p, static_cast<int>(blockIdx.x));
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int block_row = tile.row_block * C::kRows;
    int seq_q = p.seq_q, seq_kv = p.seq_kv, first_q = 0;
    int k_offset = tile.batch * p.k_stride.batch + tile.head / p.group * p.k_stride.head;
    int v_offset = tile.batch * p.v_stride.batch + tile.head / p.group * p.v_stride.head;
    int key_end = p.causal ? min(p.seq_kv, min(block_row + C::kRows, p.seq_q)) : p.seq_kv;  // that any row sees
    if constexpr (C::General) {
      const attention::Span span = attention::span_of(options, tile.batch, p.seq_q, p.seq_kv);
      if (block_row >= span.seq_q) return;
      const int key_begin = max(0, block_row + span.low) / C::BlockN * C::BlockN;
      key_end = min(span.seq_kv, min(block_row + C::kRows, span.seq_q) - 1 + span.high) - key_begin;
      seq_q = span.seq_q;
      seq_kv = span.seq_kv - key_begin;
      first_q = span.first_q;
      k_offset += (span.first_kv + key_begin) * p.k_stride.seq;
      v_offset += (span.first_kv + key_begin) * p.v_stride.seq;
      if (thread == 0) {
        plan.seq_q = seq_q;
        plan.seq_kv = seq_kv;
        plan.low = span.low - key_begin;
        plan.high = span.high - key_begin;
        plan.lse_offset = static_cast<int>(tile.batch * options.lse_stride_batch +
                                           tile.head * options.lse_stride_head) + first_q + block_row;
      }
    }
    const int blocks = max(0, key_end + C::BlockN - 1) / C::BlockN;
    if (thread == 0) {
      plan.k_offset = k_offset;
      plan.v_offset = v_offset;
      plan.block_row = block_row;
      plan.blocks = blocks;
      plan.out_offset = tile.batch * p.out_stride.batch + tile.head * p.out_stride.head +
                        (first_q + block_row) * p.out_stride.seq;
    }
    const int warp_row = block_row + warp * C::kWarpRows;
    const int q_offset =
        tile.batch * p.q_stride.batch + tile.head * p.q_stride.head + (first_q + warp_row) * p.q_stride.seq;
    unsigned char* const queries = shared + warp * (C::kWarpRows / 8) * C::kGroup;
    const char* const q = reinterpret_cast<const char*>(static_cast<const T*>(p.q) + q_offset);
    copy_rounds<C, C::kWarpRows, 32>(ptx::shared_address(queries), q, p.q_stride.seq * 2, seq_q - warp_row,
                                     p.head_dim, lane);
    constexpr int kOdd = Deal<C, C::kWarpRows, 32>::kOdd;
    if constexpr (kOdd > 0) {
      for (int index = lane; index < kOdd * C::kWarpRows; index += 32) {
        copy_odd<C, C::kWarpRows, 32>(ptx::shared_address(queries), q, p.q_stride.seq * 2, seq_q - warp_row,
                                      p.head_dim, index);
      }
    }
    if (!C::General || blocks > 0) copy_block(0, k_offset, v_offset, seq_kv);
    ptx::cp_async_commit_group();
    if constexpr (C::Realign) {
      if constexpr (C::kShiftAhead) {
        if (blocks > 1) copy_block(1, k_offset, v_offset, seq_kv);
        ptx::cp_async_commit_group();
      }
      ptx::cp_async_wait_group<C::kShiftAhead ? 1 : 0>();
      __syncthreads();
      // A warp's own 16 or 32 rows of Q, one or two lanes a row.
      constexpr int kParts = 32 / C::kWarpRows;
      const int query = lane % C::kWarpRows;
      realign_row<C, kParts>(queries + row_offset(query, C::kGroup, C::kPitch),
                             misalignment(p.q, q_offset + query * p.q_stride.seq), lane / C::kWarpRows);
      __syncwarp();
      if constexpr (C::kShiftAhead) {
        if (!C::General || blocks > 0) realign(0);
      }
    }
  }

  float o[kRowTiles][kOutTiles][4];
  float base[kRowTiles][2], sum[kRowTiles][2];  // base: in units of log 2
  const auto kept_sums = [&] {
    return reinterpret_cast<volatile float2*>(shared + C::kQueries + C::kRing) + ptx::fresh_tid_x();
  };
  const auto keep_sums = [&] {
    if constexpr (C::kSumsInShared) {
      volatile float2* kept = kept_sums();
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        kept[i * C::kThreads].x = sum[i][0];
        kept[i * C::kThreads].y = sum[i][1];
      }
    }
  };
  const auto fetch_sums = [&] {
    if constexpr (C::kSumsInShared) {
      volatile float2* kept = kept_sums();
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        sum[i][0] = kept[i * C::kThreads].x;
        sum[i][1] = kept[i * C::kThreads].y;
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[i][n][e] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      base[i][h] = -INFINITY;
      sum[i][h] = 0.0f;
    }
  }
  keep_sums();

  uint32_t kept_q[C::QInRegisters ? kRowTiles : 1][C::QInRegisters ? kSteps : 1][4];

  const auto compute = [&](int block) {
    // Where this lane's rows of the 8x8 matrices lie. Q and V: 16 rows, two chunks; K: the same by 8 rows and two chunks
    // the other way round.
    const int thread = ptx::fresh_tid_x();
    const int lane = thread % 32;
    const uint32_t row_of_8 = (lane & 7) * C::kPitch;
    const uint32_t fragment = (lane >> 3 & 1) * C::kGroup + row_of_8 + lane / 16 * 16;
    const uint32_t narrow_fragment = (lane >> 3 & 1) * C::kGroup + row_of_8;
    const uint32_t key_fragment = lane / 16 * C::kGroup + row_of_8 + (lane >> 3 & 1) * 16;
    const uint32_t narrow_key_fragment = lane / 8 * C::kGroup + row_of_8;
    const uint32_t queries = ptx::shared_address(shared) + thread / 32 * (C::kWarpRows / 8 * C::kGroup);
    const uint32_t keys = ring_address + block % C::kStages * (2 * C::kTile);
    const int first_key = block * C::BlockN;
    const auto load_q = [&](uint32_t(&a)[4], int i, int step) {
      ptx::ldmatrix_x4(a, queries + fragment + i * 2 * C::kGroup + step * 32);
    };
    if constexpr (C::QInRegisters) {
      if (block == 0) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) load_q(kept_q[i][step], i, step);
        }
      }
    }

    float s[kRowTiles][kColumns][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][n][e] = 0.0f;
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if constexpr (C::QInRegisters) {
#pragma unroll
          for (int e = 0; e < 4; ++e) a[i][e] = kept_q[i][step][e];
        } else {
          load_q(a[i], i, step);
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, keys + key_fragment + n * C::kGroup + step * 32);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          ptx::mma_sync_m16n8k16<T>(s[i][n], a[i], b[0], b[1]);
          ptx::mma_sync_m16n8k16<T>(s[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
    if constexpr (kHalfStep) {
      uint32_t a[kRowTiles][2];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        ptx::ldmatrix_x2(a[i], queries + narrow_fragment + i * 2 * C::kGroup + kSteps * 32);
      }
#pragma unroll
      for (int n = 0; n < kColumns; n += 4) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, keys + narrow_key_fragment + n * C::kGroup + kSteps * 32);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) ptx::mma_sync_m16n8k8<T>(s[i][n + e], a[i], b[e]);
        }
      }
    }

    // Only blocks at the end of the keys or on the diagonal hold pairs that do not count.
    const int warp_row = plan.block_row + ptx::fresh_tid_x() / 32 * C::kWarpRows;
    if constexpr (C::General) {
      const int lane = ptx::fresh_tid_x() % 32;
      const bool some_hidden = first_key + C::BlockN > min(plan.seq_kv, warp_row + plan.high) ||
                               first_key < warp_row + C::kWarpRows - 1 + plan.low;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + i * 16 + h * 8 + lane / 4;
          const int first = first_key + lane % 4 * 2;
          const int begin = some_hidden ? row + plan.low - first : 0;
          const int limit = some_hidden ? min(plan.seq_kv, row + plan.high) - first : C::BlockN;
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const bool hidden = n * 8 + e >= limit || n * 8 + e < begin;
              s[i][n][2 * h + e] = hidden ? -INFINITY : s[i][n][2 * h + e] * p.scale_log2;
            }
          }
        }
      }
    } else if (first_key + C::BlockN > p.seq_kv || (p.causal && first_key + C::BlockN - 1 > warp_row)) {
      const int lane = ptx::fresh_tid_x() % 32;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + i * 16 + h * 8 + lane / 4;
          const int limit = (p.causal ? min(p.seq_kv, row + 1) : p.seq_kv) - first_key - lane % 4 * 2;
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
            if (n * 8 >= limit) s[i][n][2 * h] = -INFINITY;
            if (n * 8 + 1 >= limit) s[i][n][2 * h + 1] = -INFINITY;
          }
        }
      }
    }

    // Online softmax: scores stay unscaled, the scale is folded into the argument of exp2. What is subtracted there need
    // not be the maximum so far, only near it: while no score of the warp exceeds it by more than a factor of 2^8, all
    // stays as it is, and maximum, shuffles and the rescaling of O are saved (the idea is FlashAttention-4's).
    float top[kRowTiles][2];
    bool grows = false;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float t = fmaxf(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < kColumns; ++n) t = fmaxf(t, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
        top[i][h] = C::General ? t : t * p.scale_log2;
        grows |= !(top[i][h] - base[i][h] <= kSlack);  // true for NaN
      }
    }
    fetch_sums();
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float t = top[i][h];
          t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
          t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
          t = fmaxf(t, base[i][h]);
          // Where every score so far is -inf, subtracting that would make NaN of a factor that does not matter.
          const float shrink = t == -INFINITY ? 1.0f : cuda_llm_ops::ptx::ex2(base[i][h] - t);
          base[i][h] = t;
          sum[i][h] *= shrink;
#pragma unroll
          for (int n = 0; n < kOutTiles; ++n) {
            o[i][n][2 * h] *= shrink;
            o[i][n][2 * h + 1] *= shrink;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float subtracted = base[i][h] == -INFINITY ? 0.0f : base[i][h];  // -inf - -inf is NaN, the weights are 0
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[i][n][e] = cuda_llm_ops::ptx::ex2(C::General ? s[i][n][e] - subtracted
                                                           : __fmaf_rn(s[i][n][e], p.scale_log2, -subtracted));
            sum[i][h] += s[i][n][e];
          }
        }
      }
    }
    keep_sums();

    const int value_lane = ptx::fresh_tid_x() % 32;
    const uint32_t narrow_values =
        keys + C::kTile + (value_lane >> 3 & 1) * C::kGroup + (value_lane & 7) * C::kPitch;
    const uint32_t values = narrow_values + value_lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < C::BlockN / 16; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* pair_of = &s[i][2 * step + e / 2][e % 2 * 2];
          a[i][e] = pack_pair<T>(pair_of[0], pair_of[1]);
        }
      }
#pragma unroll
      for (int n = 0; n + 1 < kOutTiles; n += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, values + step * 2 * C::kGroup + n * 16);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          ptx::mma_sync_m16n8k16<T>(o[i][n], a[i], b[0], b[1]);
          ptx::mma_sync_m16n8k16<T>(o[i][n + 1], a[i], b[2], b[3]);
        }
      }
      if constexpr (kOutTiles % 2 != 0) {
        uint32_t b[2];
        ptx::ldmatrix_x2_trans(b, narrow_values + step * 2 * C::kGroup + (kOutTiles - 1) * 16);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) ptx::mma_sync_m16n8k16<T>(o[i][kOutTiles - 1], a[i], b[0], b[1]);
      }
    }
  };

  const auto kept_block = [&] {
    return reinterpret_cast<volatile int*>(shared + C::kQueries + C::kRing + C::kThreads * kRowTiles * 8) +
           ptx::fresh_tid_x();
  };
  int block = 0;
  while (true) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    const int blocks = plan.blocks;
    if (block == blocks) break;
    if (block + C::kAhead < blocks) {
      copy_block(block + C::kAhead, plan.k_offset, plan.v_offset, keys_of_sequence());
    }
    ptx::cp_async_commit_group();
    if constexpr (C::kSumsInShared) *kept_block() = block;
    // A warp has nothing to compute where it has no row, or where all its rows come before the block's keys.
    const int warp = ptx::fresh_tid_x() / 32;
    const int warp_row = plan.block_row + warp * C::kWarpRows;
    bool computes = false;
    if constexpr (C::General) {
      computes = warp_row < plan.seq_q && block * C::BlockN < warp_row + C::kWarpRows - 1 + plan.high &&
                 (block + 1) * C::BlockN > warp_row + plan.low;
    } else {
      computes = warp_row < p.seq_q && (!p.causal || block * C::BlockN < warp_row + C::kWarpRows);
    }
    if constexpr (C::kShiftAhead) {
      const bool more = block + 1 < blocks;
      if (more && warp < C::Warps / 2) realign(block + 1);
      if (computes) compute(block);
      if (more && ptx::fresh_tid_x() / 32 >= C::Warps / 2) realign(block + 1);
    } else if constexpr (C::Realign) {
      realign(block);
      __syncthreads();
      if (computes) compute(block);
    } else {
      if (computes) compute(block);
    }
    if constexpr (C::kSumsInShared) {
      block = *kept_block();
    }
    ++block;
  }

  // O / sum through the warp's own rows of Q, then out in whole chunks.
  const int end_lane = ptx::fresh_tid_x() % 32;
  const int end_warp = ptx::fresh_tid_x() / 32;
  const int rows = min(C::kWarpRows, queries_of_sequence() - plan.block_row - end_warp * C::kWarpRows);
  if (rows <= 0) return;
  fetch_sums();
  unsigned char* const staged = shared + end_warp * (C::kWarpRows / 8) * C::kGroup;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[i][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float inverse = total == 0.0f ? 1.0f : __frcp_rn(total);
      if constexpr (C::General) {
        const int row = i * 16 + h * 8 + end_lane / 4;
        if (options.lse != nullptr && end_lane % 4 == 0 && row < rows) {
          options.lse[plan.lse_offset + end_warp * C::kWarpRows + row] = attention::log_sum_exp(base[i][h], total);
        }
      }
      unsigned char* row = staged + (2 * i + h) * C::kGroup + end_lane / 4 * C::kPitch + end_lane % 4 * 4;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        *reinterpret_cast<uint32_t*>(row + n * 16) =
            pack_pair<T>(o[i][n][2 * h] * inverse, o[i][n][2 * h + 1] * inverse);
      }
    }
  }
  __syncwarp();
  T* out = static_cast<T*>(p.out) + (plan.out_offset + end_warp * C::kWarpRows * p.out_stride.seq);
  if (p.out_aligned) {
    const int chunks = p.head_dim / 8;
    for (int index = end_lane; index < rows * C::kChunks; index += 32) {
      const int row = index / C::kChunks;
      const int chunk = index % C::kChunks;
      if (chunk < chunks) {
        *reinterpret_cast<uint4*>(out + row * p.out_stride.seq + chunk * 8) =
            *reinterpret_cast<const uint4*>(staged + row_offset(row, C::kGroup, C::kPitch) + chunk * 16);
      }
    }
  } else {
    for (int row = 0; row < rows; ++row) {
      const T* from = reinterpret_cast<const T*>(staged + row_offset(row, C::kGroup, C::kPitch));
      for (int column = end_lane; column < p.head_dim; column += 32) out[row * p.out_stride.seq + column] = from[column];
    }
  }
}

}  // namespace cuda_llm_ops::cuda::flash_mma
