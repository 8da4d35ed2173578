// flash_attention in float32: online softmax (Milakov and Gimelshein, arXiv 1805.02867) on the FMA pipes; no tensor
// core, hence no rounding of the operands.
//
//   block     Rows query rows of one (batch, head), Rows / 4 x 16 threads; a thread has 4 rows x Keys / 16 scores and
//             4 rows x HeadDim / 16 columns of the output in registers
//   shared    Q (once), K of Keys keys, later the weights in its place, V of Keys keys
//   step      cp.async K, V | wait K, barrier | scores, softmax | barrier | weights over K | wait V, barrier |
//             O = O * shrink + weights V | barrier
//
// Varlen: keys from the first to the last that the rows see, of one of several sequences (span.cuh).
//
// Several blocks an SM hide each other's loads. Rows are padded by 16 bytes: eight rows at one column lie in different
// banks. Rows that are not 16-byte aligned are copied by 4 bytes.
#include <cuda_runtime.h>

#include <algorithm>

#include "../../../arithmetic.h"
#include "../../numeric.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/ex2.cuh"
#include "../../ptx/shared_address.cuh"
#include "../launch.h"
#include "../span.cuh"
#include "simt.h"

namespace cuda_llm_ops::cuda::attention {
namespace {

using cuda_llm_ops::ptx::ex2;

struct Flags {
  bool q, k, v, out;  // rows are whole aligned 16-byte chunks
};

template <int HeadDim, int Rows, int Keys>
struct Sizes {
  static constexpr int threads = Rows / 4 * 16;
  static constexpr int pitch = HeadDim + 4;  // floats
  static constexpr int weight_pitch = Keys + 4;
  static constexpr int key_floats = std::max(Keys * pitch, Rows* weight_pitch);
  static constexpr int shared_bytes = (Rows * pitch + key_floats + Keys * pitch) * 4;
};

// Rows first .. first + Rows - 1 of a (rows, head_dim) matrix; what lies past `limit` or head_dim becomes zeros.
template <int HeadDim, int Rows, int Threads>
__device__ __forceinline__ void copy(float* to, const float* from, int64_t stride, int first, int limit, int head_dim,
                                     bool aligned) {
  constexpr int pitch = HeadDim + 4;
  if (aligned) {
#pragma unroll 2
    for (int index = threadIdx.x; index < Rows * (HeadDim / 4); index += Threads) {
      const int row = index / (HeadDim / 4);
      const int column = index % (HeadDim / 4) * 4;
      const bool inside = first + row < limit && column < head_dim;
      ptx::cp_async_cg_16(ptx::shared_address(to + row * pitch + column),
                          inside ? from + (first + row) * stride + column : from, inside ? 16 : 0);
    }
  } else {
#pragma unroll 4
    for (int index = threadIdx.x; index < Rows * HeadDim; index += Threads) {
      const int row = index / HeadDim;
      const int column = index % HeadDim;
      const bool inside = first + row < limit && column < head_dim;
      ptx::cp_async_ca_4(ptx::shared_address(to + row * pitch + column),
                         inside ? from + (first + row) * stride + column : from, inside ? 4 : 0);
    }
  }
}

template <int HeadDim, int Rows, int Keys, bool Varlen>
__global__ void __launch_bounds__(Sizes<HeadDim, Rows, Keys>::threads, 2)
    kernel(const __grid_constant__ AttentionArguments a, const __grid_constant__ Flags aligned,
           const __grid_constant__ AttentionOptions options) {
  using S = Sizes<HeadDim, Rows, Keys>;
  constexpr int columns = HeadDim / 64;  // float4s of the output a row and thread
  constexpr int keys_each = Keys / 16;
  extern __shared__ __align__(16) float floats[];
  float* const queries = floats;
  float* const keys = queries + Rows * S::pitch;
  float* const weights = keys;
  float* const values = keys + S::key_floats;

  const int tx = static_cast<int>(threadIdx.x) % 16;
  const int ty = static_cast<int>(threadIdx.x) / 16;
  const int row_blocks = (a.seq_q + Rows - 1) / Rows;
  const int pairs = a.batch * a.heads;
  // The rows that see the most keys first.
  const int pair = static_cast<int>(blockIdx.x) % pairs;
  const int first_row = (row_blocks - 1 - static_cast<int>(blockIdx.x) / pairs) * Rows;
  const int batch = pair / a.heads;
  const int head = pair % a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const float* q = static_cast<const float*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head;
  const float* k = static_cast<const float*>(a.k) + batch * a.k_stride.batch + kv_head * a.k_stride.head;
  const float* v = static_cast<const float*>(a.v) + batch * a.v_stride.batch + kv_head * a.v_stride.head;
  int seq_q = a.seq_q, seq_kv = a.seq_kv;
  int key_begin = 0, key_end = a.causal ? min(a.seq_kv, first_row + Rows) : a.seq_kv;
  Span span{};
  if constexpr (Varlen) {
    span = span_of(options, batch, a.seq_q, a.seq_kv);
    seq_q = span.seq_q;
    seq_kv = span.seq_kv;
    if (first_row >= seq_q) return;
    key_begin = max(0, first_row + span.low);
    key_end = min(seq_kv, min(first_row + Rows, seq_q) - 1 + span.high);
    q += span.first_q * a.q_stride.seq;
    k += span.first_kv * a.k_stride.seq;
    v += span.first_kv * a.v_stride.seq;
  }
  const float scale = a.scale * kLog2E;  // scores in units of log 2

  copy<HeadDim, Rows, S::threads>(queries, q, a.q_stride.seq, first_row, seq_q, a.head_dim, aligned.q);

  float4 o[4][columns];
  float maximum[4], sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    maximum[i] = -INFINITY;
    sum[i] = 0.0f;
#pragma unroll
    for (int c = 0; c < columns; ++c) o[i][c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }

  for (int first_key = key_begin; first_key < key_end; first_key += Keys) {
    copy<HeadDim, Keys, S::threads>(keys, k, a.k_stride.seq, first_key, seq_kv, a.head_dim, aligned.k);
    ptx::cp_async_commit_group();
    copy<HeadDim, Keys, S::threads>(values, v, a.v_stride.seq, first_key, seq_kv, a.head_dim, aligned.v);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<1>();
    __syncthreads();

    // Rows ty * 4 + i, keys tx + 16 * j.
    float s[4][keys_each] = {};
#pragma unroll 1
    for (int d = 0; d < HeadDim; d += 4) {
      float4 left[4], right[keys_each];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = *reinterpret_cast<const float4*>(queries + (ty * 4 + i) * S::pitch + d);
      }
#pragma unroll
      for (int j = 0; j < keys_each; ++j) {
        right[j] = *reinterpret_cast<const float4*>(keys + (tx + 16 * j) * S::pitch + d);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < keys_each; ++j) {
          s[i][j] = fmaf(left[i].x, right[j].x, s[i][j]);
          s[i][j] = fmaf(left[i].y, right[j].y, s[i][j]);
          s[i][j] = fmaf(left[i].z, right[j].z, s[i][j]);
          s[i][j] = fmaf(left[i].w, right[j].w, s[i][j]);
        }
      }
    }

    float shrink[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + ty * 4 + i;
      const int limit = Varlen ? min(seq_kv, row + span.high) : a.causal ? min(seq_kv, row + 1) : seq_kv;
      const int begin = Varlen ? row + span.low : 0;
      float top = maximum[i];
#pragma unroll
      for (int j = 0; j < keys_each; ++j) {
        const int key = first_key + tx + 16 * j;
        s[i][j] = key < limit && (!Varlen || key >= begin) ? s[i][j] * scale : -INFINITY;
        top = fmaxf(top, s[i][j]);
      }
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lane));
      const float base = top == -INFINITY ? 0.0f : top;
      shrink[i] = ex2(maximum[i] - base);
      maximum[i] = top;
      float added = 0.0f;
#pragma unroll
      for (int j = 0; j < keys_each; ++j) {
        s[i][j] = ex2(s[i][j] - base);
        added += s[i][j];
      }
      sum[i] = sum[i] * shrink[i] + added;  // of this thread's keys; added up over the threads at the end
    }

    __syncthreads();  // all have read K
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < keys_each; ++j) weights[(ty * 4 + i) * S::weight_pitch + tx + 16 * j] = s[i][j];
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();

#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        o[i][c].x *= shrink[i];
        o[i][c].y *= shrink[i];
        o[i][c].z *= shrink[i];
        o[i][c].w *= shrink[i];
      }
    }
    // Rows ty * 4 + i, columns 64 * c + tx * 4 + (0 .. 3).
#pragma unroll 1
    for (int key = 0; key < Keys; key += 4) {
      float w[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(weights + (ty * 4 + i) * S::weight_pitch + key);
        w[i][0] = four.x;
        w[i][1] = four.y;
        w[i][2] = four.z;
        w[i][3] = four.w;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float4 value = *reinterpret_cast<const float4*>(values + (key + e) * S::pitch + 64 * c + tx * 4);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            o[i][c].x = fmaf(w[i][e], value.x, o[i][c].x);
            o[i][c].y = fmaf(w[i][e], value.y, o[i][c].y);
            o[i][c].z = fmaf(w[i][e], value.z, o[i][c].z);
            o[i][c].w = fmaf(w[i][e], value.w, o[i][c].w);
          }
        }
      }
    }
    __syncthreads();  // all have read the weights and V
  }

  float* out = static_cast<float*>(a.out) + batch * a.out_stride.batch + head * a.out_stride.head;
  if constexpr (Varlen) out += span.first_q * a.out_stride.seq;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float total = sum[i];
#pragma unroll
    for (int lane = 8; lane > 0; lane /= 2) total += __shfl_xor_sync(0xffffffffu, total, lane);
    // 0 only where every score is -inf: weights 0, as in scaled_dot_product_attention.
    const float inverse = total == 0.0f ? 1.0f : 1.0f / total;
    const int row = first_row + ty * 4 + i;
    if (row >= seq_q) continue;
    if constexpr (Varlen) {
      if (options.lse != nullptr && tx == 0) {
        options.lse[batch * options.lse_stride_batch + head * options.lse_stride_head + span.first_q + row] =
            log_sum_exp(maximum[i], total);
      }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int column = 64 * c + tx * 4;
      float* to = out + row * a.out_stride.seq + column;
      const float4 value =
          make_float4(o[i][c].x * inverse, o[i][c].y * inverse, o[i][c].z * inverse, o[i][c].w * inverse);
      if (aligned.out) {
        if (column < a.head_dim) *reinterpret_cast<float4*>(to) = value;
      } else {
        if (column < a.head_dim) to[0] = value.x;
        if (column + 1 < a.head_dim) to[1] = value.y;
        if (column + 2 < a.head_dim) to[2] = value.z;
        if (column + 3 < a.head_dim) to[3] = value.w;
      }
    }
  }
}

template <int HeadDim, int Rows, int Keys, bool Varlen>
Kernel instance(const char* name) {
  using S = Sizes<HeadDim, Rows, Keys>;
  return {"flash_attention", name, reinterpret_cast<const void*>(&kernel<HeadDim, Rows, Keys, Varlen>), S::threads,
          S::shared_bytes};
}

constexpr int kRows[3] = {64, 64, 32};
const Kernel kKernels[3] = {instance<64, 64, 64, false>("flash_simt_float32_64"),
                            instance<128, 64, 64, false>("flash_simt_float32_128"),
                            instance<256, 32, 32, false>("flash_simt_float32_256")};
const Kernel kVarlenKernels[3] = {instance<64, 64, 64, true>("flash_simt_general_float32_64"),
                                  instance<128, 64, 64, true>("flash_simt_general_float32_128"),
                                  instance<256, 32, 32, true>("flash_simt_general_float32_256")};

bool rows_aligned(const void* tensor, const HeadStrides& stride, int head_dim) {
  return reinterpret_cast<uintptr_t>(tensor) % 16 == 0 && stride.batch % 4 == 0 && stride.head % 4 == 0 &&
         stride.seq % 4 == 0 && head_dim % 4 == 0;
}

const char* launch_one(const Kernel (&kernels)[3], const AttentionArguments& a, const AttentionOptions& options,
                       cudaStream_t stream) {
  const int size = a.head_dim <= 64 ? 0 : a.head_dim <= 128 ? 1 : 2;
  const int row_blocks = (a.seq_q + kRows[size] - 1) / kRows[size];
  Flags aligned = {rows_aligned(a.q, a.q_stride, a.head_dim), rows_aligned(a.k, a.k_stride, a.head_dim),
                   rows_aligned(a.v, a.v_stride, a.head_dim), rows_aligned(a.out, a.out_stride, a.head_dim)};
  void* arguments[] = {const_cast<AttentionArguments*>(&a), &aligned, const_cast<AttentionOptions*>(&options)};
  return launch(kernels[size], dim3(static_cast<unsigned>(a.batch * a.heads * row_blocks)), kernels[size].threads,
                arguments, stream);
}

}  // namespace

const char* flash_simt(const AttentionArguments& a, cudaStream_t stream) { return launch_one(kKernels, a, {}, stream); }

const char* flash_simt_varlen(const AttentionArguments& a, const AttentionOptions& options, cudaStream_t stream) {
  return launch_one(kVarlenKernels, a, options, stream);
}

void flash_simt_attributes(std::vector<KernelAttributes>& into) {
  for (const Kernel& one : kKernels) add_attributes(one, into);
  for (const Kernel& one : kVarlenKernels) add_attributes(one, into);
}

}  // namespace cuda_llm_ops::cuda::attention
