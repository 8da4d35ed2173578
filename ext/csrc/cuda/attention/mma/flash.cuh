// flash_attention for 16-bit types on any GPU from sm_80: FlashAttention-2 (Dao, arXiv 2307.08691) on mma.sync.
//
//   A thread block has C::warps warps, each with its own 16 * C::row_tiles query rows of one (batch, head). The keys pass
//   by in blocks of C::block_n, in ascending order.
//
//             global --cp.async--> Q rows of the warp (once)        each warp its own rows: no block barrier
//             global --cp.async--> ring of K and V blocks in shared memory, C::stages deep, every thread loads
//             shared --ldmatrix--> fragments --mma.sync--> S = Q K^T (registers)
//             S --online softmax (exp2)--> P (registers, 16-bit)
//             shared --ldmatrix.trans--> V fragments --mma.sync--> O += P V (registers)
//
//   step j:   wait for own cp.async of block j (realigned with 8 warps: j + 1, and so on)
//             __syncthreads()    all copies are visible; all threads are done with block j - 1
//             issue cp.async of block j + 1 (j + 2) into the stage that block j - 1 used
//             S, softmax, P V of block j
//             (realigned with 8 warps: shift block j + 1 in place, before or after that. The two halves of the thread
//              block differ in the order, so that one shifts while the other multiplies. With 4 warps: shift block j
//              before, __syncthreads(); another thread block of the multiprocessor fills the pause.)
//
// There is one barrier in a step. Shared memory rows have a pitch of an odd number of 16-byte chunks (copy.cuh). The
// eight rows of an 8x8 matrix then begin in different banks, as with an XOR swizzle, but every address of a thread is a
// base plus a compile-time offset.
//
// realigned: rows that do not begin at multiples of 16 bytes (head_dim 129) cannot be copied by cp.async to where they
// should lie in shared memory. They are copied as the aligned 16-byte chunks that cover them, one chunk more than the
// row needs, and a few lanes of one warp move each row to the left in place (realign.cuh). The part of a chunk to the
// right of the row becomes zeros. The part to the left lies in the same 16 aligned bytes as the row's first element,
// hence in the same allocation, and is shifted out.
//
// varlen: with AttentionOptions, in instances of their own, so that the plain ones do not pay for options. Keys are
// counted from the first block that the thread block's rows see, and the lengths are those of one sequence (span.cuh).
// Scores are scaled before they are masked, so any scale is allowed.
//
// Values that are not finite: as softmax in IEEE arithmetic. A row whose scores are all -inf gives 0 times V, as
// scaled_dot_product_attention does. Keys that causality hides take no part, but a hidden V row of the same block as a
// visible one is multiplied by 0.
//
// From a tile to its stores: the kernel below finds its tile, copies Q, walks the key blocks in `compute`, and writes
// O.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../../../kernels.h"
#include "../../numeric.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/ex2.cuh"
#include "../../ptx/ldmatrix.cuh"
#include "../../ptx/mma_sync.cuh"
#include "../../ptx/mma_sync_m16n8k8.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/special_registers.cuh"
#include "../span.cuh"
#include "config.cuh"
#include "copy.cuh"
#include "realign.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

// The rows and the head of a thread block: sections of heads one after the other, and in a section the rows that see
// the most keys first.
struct Tile {
  int batch, head, row_block;

  __device__ __forceinline__ static Tile of(const Parameters& p, int index) {
    const int first_head_of_section = index / (p.section * p.row_blocks) * p.section;
    const int rest = index - first_head_of_section * p.row_blocks;
    const int section = min(p.section, p.batch_heads - first_head_of_section);
    const int batch_head = first_head_of_section + rest % section;
    return {batch_head / p.heads, batch_head % p.heads, p.row_blocks - 1 - rest / section};
  }
};

constexpr float kSlack = 8.0f;  // weights up to 2^8 fit float16 and lose nothing in float32 sums

struct Plan {
  int k_offset, v_offset, out_offset;  // elements
  int block_row, blocks;
  // varlen alone. Keys are counted from the first one that is copied; row r sees those from r + low to before r + high.
  int seq_q, seq_kv, low, high, lse_offset;
};

template <typename C>
using OptionsOf = std::conditional_t<C::varlen, AttentionOptions, NoOptions>;

template <typename C>
__global__ void __launch_bounds__(C::threads, C::threads >= 256 ? 1 : 2)
    kernel(const __grid_constant__ Parameters p, const __grid_constant__ OptionsOf<C> options) {
  using T = typename C::T;
  constexpr int row_tiles = C::row_tiles;
  constexpr int columns = C::block_n / 8;     // 8-wide column tiles of S
  constexpr int out_tiles = C::head_dim / 8;  // 8-wide column tiles of O
  constexpr int steps = C::head_dim / 16;     // whole k16 steps of Q K^T
  constexpr bool half_step = C::head_dim % 16 != 0;

  // The tile of the thread block, in shared memory because the accumulators leave no registers for it. Each step reads
  // or computes anew what it needs (ptx/special_registers.cuh).
  __shared__ volatile Plan plan;
  extern __shared__ __align__(128) unsigned char shared[];
  unsigned char* const ring = shared + C::query_bytes;
  const auto queries_of_sequence = [&] {
    if constexpr (C::varlen)
      return plan.seq_q;
    else
      return p.seq_q;
  };
  const auto keys_of_sequence = [&] {
    if constexpr (C::varlen)
      return plan.seq_kv;
    else
      return p.seq_kv;
  };
  const uint32_t ring_address = ptx::shared_address(ring);

  const auto copy_block = [&](int block, int k_offset, int v_offset, int seq_kv) {
    const uint32_t stage = ring_address + block % C::stages * (2 * C::tile_bytes);
    const int thread = ptx::fresh_tid_x();
    const int row = block * C::block_n;
    const int rows = seq_kv - row;
    const char* const k = reinterpret_cast<const char*>(static_cast<const T*>(p.k) + (k_offset + row * p.k_stride.seq));
    const char* const v = reinterpret_cast<const char*>(static_cast<const T*>(p.v) + (v_offset + row * p.v_stride.seq));
    copy_rounds<C, C::block_n, C::threads>(stage, k, p.k_stride.seq * 2, rows, p.head_dim, thread);
    copy_rounds<C, C::block_n, C::threads>(stage + C::tile_bytes, v, p.v_stride.seq * 2, rows, p.head_dim, thread);
    constexpr int odd_chunks = Deal<C, C::block_n, C::threads>::odd * C::block_n;  // of K, and of V
    if constexpr (odd_chunks > 0) {
#pragma unroll
      for (int first = 0; first < 2 * odd_chunks; first += C::threads) {
        const int index = first + thread;
        if (2 * odd_chunks % C::threads != 0 && index >= 2 * odd_chunks) continue;
        const bool is_value = index >= odd_chunks;
        copy_odd<C, C::block_n, C::threads>(stage + (is_value ? C::tile_bytes : 0), is_value ? v : k,
                                            (is_value ? p.v_stride.seq : p.k_stride.seq) * 2, rows, p.head_dim,
                                            is_value ? index - odd_chunks : index);
      }
    }
  };
  const auto realign = [&](int block) {
    const int thread = ptx::fresh_tid_x();
    realign_block<C>(ring + block % C::stages * (2 * C::tile_bytes), p,
                     plan.k_offset + block * C::block_n * p.k_stride.seq,
                     plan.v_offset + block * C::block_n * p.v_stride.seq, thread / 32, thread % 32);
  };

  {
    const Tile tile = Tile::of(p, static_cast<int>(blockIdx.x));
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int block_row = tile.row_block * C::rows;
    int seq_q = p.seq_q, seq_kv = p.seq_kv, first_q = 0;
    int k_offset = tile.batch * p.k_stride.batch + tile.head / p.group * p.k_stride.head;
    int v_offset = tile.batch * p.v_stride.batch + tile.head / p.group * p.v_stride.head;
    int key_end = p.causal ? min(p.seq_kv, min(block_row + C::rows, p.seq_q)) : p.seq_kv;  // that any row sees
    if constexpr (C::varlen) {
      const attention::Span span = attention::span_of(options, tile.batch, p.seq_q, p.seq_kv);
      if (block_row >= span.seq_q) return;
      const int key_begin = max(0, block_row + span.low) / C::block_n * C::block_n;
      key_end = min(span.seq_kv, min(block_row + C::rows, span.seq_q) - 1 + span.high) - key_begin;
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
        plan.lse_offset =
            static_cast<int>(tile.batch * options.lse_stride_batch + tile.head * options.lse_stride_head) + first_q +
            block_row;
      }
    }
    const int blocks = max(0, key_end + C::block_n - 1) / C::block_n;
    if (thread == 0) {
      plan.k_offset = k_offset;
      plan.v_offset = v_offset;
      plan.block_row = block_row;
      plan.blocks = blocks;
      plan.out_offset =
          tile.batch * p.out_stride.batch + tile.head * p.out_stride.head + (first_q + block_row) * p.out_stride.seq;
    }
    const int warp_row = block_row + warp * C::warp_rows;
    const int q_offset =
        tile.batch * p.q_stride.batch + tile.head * p.q_stride.head + (first_q + warp_row) * p.q_stride.seq;
    unsigned char* const queries = shared + warp * (C::warp_rows / 8) * C::group_bytes;
    const char* const q = reinterpret_cast<const char*>(static_cast<const T*>(p.q) + q_offset);
    copy_rounds<C, C::warp_rows, 32>(ptx::shared_address(queries), q, p.q_stride.seq * 2, seq_q - warp_row, p.head_dim,
                                     lane);
    constexpr int odd_of_q = Deal<C, C::warp_rows, 32>::odd;
    if constexpr (odd_of_q > 0) {
      for (int index = lane; index < odd_of_q * C::warp_rows; index += 32) {
        copy_odd<C, C::warp_rows, 32>(ptx::shared_address(queries), q, p.q_stride.seq * 2, seq_q - warp_row, p.head_dim,
                                      index);
      }
    }
    if (!C::varlen || blocks > 0) copy_block(0, k_offset, v_offset, seq_kv);
    ptx::cp_async_commit_group();
    if constexpr (C::realigned) {
      if constexpr (C::shift_ahead) {
        if (blocks > 1) copy_block(1, k_offset, v_offset, seq_kv);
        ptx::cp_async_commit_group();
      }
      ptx::cp_async_wait_group<C::shift_ahead ? 1 : 0>();
      __syncthreads();
      // A warp's own 16 or 32 rows of Q, one or two lanes a row.
      constexpr int parts = 32 / C::warp_rows;
      const int query = lane % C::warp_rows;
      realign_row<C, parts>(queries + row_offset(query, C::group_bytes, C::pitch),
                            misalignment(p.q, q_offset + query * p.q_stride.seq), lane / C::warp_rows);
      __syncwarp();
      if constexpr (C::shift_ahead) {
        if (!C::varlen || blocks > 0) realign(0);
      }
    }
  }

  float o[row_tiles][out_tiles][4];
  float base[row_tiles][2], sum[row_tiles][2];  // base: in units of log 2
  const auto kept_sums = [&] {
    return reinterpret_cast<volatile float2*>(shared + C::query_bytes + C::ring_bytes) + ptx::fresh_tid_x();
  };
  const auto keep_sums = [&] {
    if constexpr (C::sums_in_shared) {
      volatile float2* kept = kept_sums();
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        kept[i * C::threads].x = sum[i][0];
        kept[i * C::threads].y = sum[i][1];
      }
    }
  };
  const auto fetch_sums = [&] {
    if constexpr (C::sums_in_shared) {
      volatile float2* kept = kept_sums();
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        sum[i][0] = kept[i * C::threads].x;
        sum[i][1] = kept[i * C::threads].y;
      }
    }
  };
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int n = 0; n < out_tiles; ++n) {
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

  uint32_t kept_q[C::q_registers ? row_tiles : 1][C::q_registers ? steps : 1][4];

  const auto compute = [&](int block) {
    // Where this lane's rows of the 8x8 matrices lie. Q and V: 16 rows, two chunks; K: the same by 8 rows and two
    // chunks the other way round.
    const int thread = ptx::fresh_tid_x();
    const int lane = thread % 32;
    const uint32_t row_of_8 = (lane & 7) * C::pitch;
    const uint32_t fragment = (lane >> 3 & 1) * C::group_bytes + row_of_8 + lane / 16 * 16;
    const uint32_t narrow_fragment = (lane >> 3 & 1) * C::group_bytes + row_of_8;
    const uint32_t key_fragment = lane / 16 * C::group_bytes + row_of_8 + (lane >> 3 & 1) * 16;
    const uint32_t narrow_key_fragment = lane / 8 * C::group_bytes + row_of_8;
    const uint32_t queries = ptx::shared_address(shared) + thread / 32 * (C::warp_rows / 8 * C::group_bytes);
    const uint32_t keys = ring_address + block % C::stages * (2 * C::tile_bytes);
    const int first_key = block * C::block_n;
    const auto load_q = [&](uint32_t (&a)[4], int i, int step) {
      ptx::ldmatrix_x4(a, queries + fragment + i * 2 * C::group_bytes + step * 32);
    };
    if constexpr (C::q_registers) {
      if (block == 0) {
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
          for (int step = 0; step < steps; ++step) load_q(kept_q[i][step], i, step);
        }
      }
    }

    float s[row_tiles][columns][4];
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][n][e] = 0.0f;
      }
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      uint32_t a[row_tiles][4];
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        if constexpr (C::q_registers) {
#pragma unroll
          for (int e = 0; e < 4; ++e) a[i][e] = kept_q[i][step][e];
        } else {
          load_q(a[i], i, step);
        }
      }
#pragma unroll
      for (int n = 0; n < columns; n += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, keys + key_fragment + n * C::group_bytes + step * 32);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
          ptx::mma_sync_m16n8k16<T>(s[i][n], a[i], b[0], b[1]);
          ptx::mma_sync_m16n8k16<T>(s[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
    if constexpr (half_step) {
      uint32_t a[row_tiles][2];
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        ptx::ldmatrix_x2(a[i], queries + narrow_fragment + i * 2 * C::group_bytes + steps * 32);
      }
#pragma unroll
      for (int n = 0; n < columns; n += 4) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, keys + narrow_key_fragment + n * C::group_bytes + steps * 32);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) ptx::mma_sync_m16n8k8<T>(s[i][n + e], a[i], b[e]);
        }
      }
    }

    // Only blocks at the end of the keys or on the diagonal hold pairs that do not count.
    const int warp_row = plan.block_row + ptx::fresh_tid_x() / 32 * C::warp_rows;
    if constexpr (C::varlen) {
      const int lane = ptx::fresh_tid_x() % 32;
      const bool some_hidden = first_key + C::block_n > min(plan.seq_kv, warp_row + plan.high) ||
                               first_key < warp_row + C::warp_rows - 1 + plan.low;
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + i * 16 + h * 8 + lane / 4;
          const int first = first_key + lane % 4 * 2;
          const int begin = some_hidden ? row + plan.low - first : 0;
          const int limit = some_hidden ? min(plan.seq_kv, row + plan.high) - first : C::block_n;
#pragma unroll
          for (int n = 0; n < columns; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const bool hidden = n * 8 + e >= limit || n * 8 + e < begin;
              s[i][n][2 * h + e] = hidden ? -INFINITY : s[i][n][2 * h + e] * p.scale_log2;
            }
          }
        }
      }
    } else if (first_key + C::block_n > p.seq_kv || (p.causal && first_key + C::block_n - 1 > warp_row)) {
      const int lane = ptx::fresh_tid_x() % 32;
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + i * 16 + h * 8 + lane / 4;
          const int limit = (p.causal ? min(p.seq_kv, row + 1) : p.seq_kv) - first_key - lane % 4 * 2;
#pragma unroll
          for (int n = 0; n < columns; ++n) {
            if (n * 8 >= limit) s[i][n][2 * h] = -INFINITY;
            if (n * 8 + 1 >= limit) s[i][n][2 * h + 1] = -INFINITY;
          }
        }
      }
    }

    // Online softmax: scores stay unscaled, the scale is folded into the argument of exp2. What is subtracted there
    // need not be the maximum so far, only near it: while no score of the warp exceeds it by more than a factor of 2^8,
    // all stays as it is, and maximum, shuffles and the rescaling of O are saved (the idea is FlashAttention-4's).
    float top[row_tiles][2];
    bool grows = false;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float t = fmaxf(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < columns; ++n) t = fmaxf(t, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
        top[i][h] = C::varlen ? t : t * p.scale_log2;
        grows |= !(top[i][h] - base[i][h] <= kSlack);  // true for NaN
      }
    }
    fetch_sums();
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
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
          for (int n = 0; n < out_tiles; ++n) {
            o[i][n][2 * h] *= shrink;
            o[i][n][2 * h + 1] *= shrink;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float subtracted = base[i][h] == -INFINITY ? 0.0f : base[i][h];  // -inf - -inf is NaN, the weights are 0
#pragma unroll
        for (int n = 0; n < columns; ++n) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[i][n][e] = cuda_llm_ops::ptx::ex2(C::varlen ? s[i][n][e] - subtracted
                                                          : __fmaf_rn(s[i][n][e], p.scale_log2, -subtracted));
            sum[i][h] += s[i][n][e];
          }
        }
      }
    }
    keep_sums();

    const int value_lane = ptx::fresh_tid_x() % 32;
    const uint32_t narrow_values =
        keys + C::tile_bytes + (value_lane >> 3 & 1) * C::group_bytes + (value_lane & 7) * C::pitch;
    const uint32_t values = narrow_values + value_lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < C::block_n / 16; ++step) {
      uint32_t a[row_tiles][4];
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* pair_of = &s[i][2 * step + e / 2][e % 2 * 2];
          a[i][e] = pack_pair<T>(pair_of[0], pair_of[1]);
        }
      }
#pragma unroll
      for (int n = 0; n + 1 < out_tiles; n += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, values + step * 2 * C::group_bytes + n * 16);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
          ptx::mma_sync_m16n8k16<T>(o[i][n], a[i], b[0], b[1]);
          ptx::mma_sync_m16n8k16<T>(o[i][n + 1], a[i], b[2], b[3]);
        }
      }
      if constexpr (out_tiles % 2 != 0) {
        uint32_t b[2];
        ptx::ldmatrix_x2_trans(b, narrow_values + step * 2 * C::group_bytes + (out_tiles - 1) * 16);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) ptx::mma_sync_m16n8k16<T>(o[i][out_tiles - 1], a[i], b[0], b[1]);
      }
    }
  };

  const auto kept_block = [&] {
    return reinterpret_cast<volatile int*>(shared + C::query_bytes + C::ring_bytes + C::threads * row_tiles * 8) +
           ptx::fresh_tid_x();
  };
  int block = 0;
  while (true) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    const int blocks = plan.blocks;
    if (block == blocks) break;
    if (block + C::ahead < blocks) {
      copy_block(block + C::ahead, plan.k_offset, plan.v_offset, keys_of_sequence());
    }
    ptx::cp_async_commit_group();
    if constexpr (C::sums_in_shared) *kept_block() = block;
    // A warp has nothing to compute where it has no row, or where all its rows come before the block's keys.
    const int warp = ptx::fresh_tid_x() / 32;
    const int warp_row = plan.block_row + warp * C::warp_rows;
    bool computes = false;
    if constexpr (C::varlen) {
      computes = warp_row < plan.seq_q && block * C::block_n < warp_row + C::warp_rows - 1 + plan.high &&
                 (block + 1) * C::block_n > warp_row + plan.low;
    } else {
      computes = warp_row < p.seq_q && (!p.causal || block * C::block_n < warp_row + C::warp_rows);
    }
    if constexpr (C::shift_ahead) {
      const bool more = block + 1 < blocks;
      if (more && warp < C::warps / 2) realign(block + 1);
      if (computes) compute(block);
      if (more && ptx::fresh_tid_x() / 32 >= C::warps / 2) realign(block + 1);
    } else if constexpr (C::realigned) {
      realign(block);
      __syncthreads();
      if (computes) compute(block);
    } else {
      if (computes) compute(block);
    }
    if constexpr (C::sums_in_shared) {
      block = *kept_block();
    }
    ++block;
  }

  // O / sum through the warp's own rows of Q, then out in whole chunks.
  const int end_lane = ptx::fresh_tid_x() % 32;
  const int end_warp = ptx::fresh_tid_x() / 32;
  const int rows = min(C::warp_rows, queries_of_sequence() - plan.block_row - end_warp * C::warp_rows);
  if (rows <= 0) return;
  fetch_sums();
  unsigned char* const staged = shared + end_warp * (C::warp_rows / 8) * C::group_bytes;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[i][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float inverse = total == 0.0f ? 1.0f : __frcp_rn(total);
      if constexpr (C::varlen) {
        const int row = i * 16 + h * 8 + end_lane / 4;
        if (options.lse != nullptr && end_lane % 4 == 0 && row < rows) {
          options.lse[plan.lse_offset + end_warp * C::warp_rows + row] = attention::log_sum_exp(base[i][h], total);
        }
      }
      unsigned char* row = staged + (2 * i + h) * C::group_bytes + end_lane / 4 * C::pitch + end_lane % 4 * 4;
#pragma unroll
      for (int n = 0; n < out_tiles; ++n) {
        *reinterpret_cast<uint32_t*>(row + n * 16) =
            pack_pair<T>(o[i][n][2 * h] * inverse, o[i][n][2 * h + 1] * inverse);
      }
    }
  }
  __syncwarp();
  T* out = static_cast<T*>(p.out) + (plan.out_offset + end_warp * C::warp_rows * p.out_stride.seq);
  if (p.out_aligned) {
    const int chunks = p.head_dim / 8;
    for (int index = end_lane; index < rows * C::chunks; index += 32) {
      const int row = index / C::chunks;
      const int chunk = index % C::chunks;
      if (chunk < chunks) {
        *reinterpret_cast<uint4*>(out + row * p.out_stride.seq + chunk * 8) =
            *reinterpret_cast<const uint4*>(staged + row_offset(row, C::group_bytes, C::pitch) + chunk * 16);
      }
    }
  } else {
    for (int row = 0; row < rows; ++row) {
      const T* from = reinterpret_cast<const T*>(staged + row_offset(row, C::group_bytes, C::pitch));
      for (int column = end_lane; column < p.head_dim; column += 32)
        out[row * p.out_stride.seq + column] = from[column];
    }
  }
}

}  // namespace cuda_llm_ops::cuda::flash_mma
