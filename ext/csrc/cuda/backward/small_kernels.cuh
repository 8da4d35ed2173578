// The two small kernels around the backward's main one.
//
//   prepare   d_sum = rowsum(d_out * out) - d_lse, lse in base 2, both padded; zeros for dQ's sums, or for the turns
//   finish    dQ's float32 sums, scaled and rounded, in their places
//
// Of packed sequences blockIdx.x counts half slots (sm90_slots.cuh), and blockIdx.y heads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../numeric.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "sm90_slots.cuh"

namespace cuda_llm_ops::cuda::backward {

struct PrepareParameters {
  const void* out;
  const void* d_out;
  const float* lse;    // natural, (batch * heads, seq_q)
  const float* d_lse;  // the same shape, or nullptr
  float* lse_2;
  float* d_sum;
  float* dq_sums;   // set to 0, unless there are turns; of packed sequences always
  uint32_t* turns;  // set to 0, or nullptr
  HeadStrides out_stride, d_out_stride;
  int32_t heads, seq_q, padded_q, value_dim;
};

struct FinishParameters {
  const float* dq_sums;
  void* dq;
  int32_t seq_q, padded_q, head_dim;
  float scale;
};

// Of packed sequences. Types of their own: with larger ones the compiler makes other code of the kernels for one
// sequence.
struct PackedPrepareParameters : PrepareParameters {
  AttentionOptions options;
  int32_t sequences;
};

struct PackedFinishParameters : FinishParameters {
  AttentionOptions options;
  HeadStrides dq_stride;
  int32_t sequences;
};

template <bool Packed>
using PrepareParametersOf = std::conditional_t<Packed, PackedPrepareParameters, PrepareParameters>;
template <bool Packed>
using FinishParametersOf = std::conditional_t<Packed, PackedFinishParameters, FinishParameters>;

constexpr int small_threads = 256;

// Of packed sequences: which rows of the tensor a block has.
struct HalfSlot {
  int first, end;  // cut off at the sequence's end, which may come before
  bool some;       // whether the sequence has such rows, or rows that pad them

  template <typename P>
  __device__ __forceinline__ static HalfSlot of(const P& p) {
    const int at = blockIdx.x * sum_rows;
    const int sequence = sequence_of(p.options.cu_seqlens_q, p.options.total_q, p.sequences, at / row_padding);
    if (sequence < 0) return {0, 0, false};
    const attention::Span span = attention::span_of(p.options, sequence, p.seq_q, 0);
    const int within = at - first_slot(span.first_q, sequence) * row_padding;
    const int slots = (span.seq_q + row_padding - 1) / row_padding;
    return {span.first_q + within, span.first_q + span.seq_q, within >= 0 && within < slots * row_padding};
  }
};

// A block has 64 queries of a head: blockIdx.x of them, blockIdx.y of batch * heads.
template <typename T, int HeadDim, bool Packed>
__global__ void __launch_bounds__(small_threads) prepare(const PrepareParametersOf<Packed> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::griddepcontrol_launch_dependents();
  constexpr int lanes = HeadDim > 128 ? 32 : HeadDim / 8;  // of a row, 16 bytes each
  int first = blockIdx.x * sum_rows, batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  int end = p.seq_q, all = p.seq_q;  // rows of the tensor
  if constexpr (Packed) {
    const HalfSlot rows = HalfSlot::of(p);
    if (!rows.some) return;
    first = rows.first, end = rows.end, all = p.options.total_q;
  }
  const T* const out = static_cast<const T*>(p.out) + batch * p.out_stride.batch + head * p.out_stride.head;
  const T* const d_out = static_cast<const T*>(p.d_out) + batch * p.d_out_stride.batch + head * p.d_out_stride.head;
  const int lane = threadIdx.x % lanes;
  const int64_t padded = static_cast<int64_t>(blockIdx.y) * p.padded_q;
#pragma unroll
  for (int r = threadIdx.x / lanes; r < sum_rows; r += small_threads / lanes) {
    const int row = first + r;
    float sum = 0.0f;
    if (row < end && lane * 8 < p.value_dim) {  // behind the last column are zeros up to a multiple of 8
      const uint4 a = *reinterpret_cast<const uint4*>(out + row * p.out_stride.seq + lane * 8);
      const uint4 b = *reinterpret_cast<const uint4*>(d_out + row * p.d_out_stride.seq + lane * 8);
      const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = unpack_pair<T>(left[i]), y = unpack_pair<T>(right[i]);
        sum += x.x * y.x + x.y * y.y;
      }
    }
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) {
      // A row without a finite score has no weights: +inf makes them 0.
      const float lse = row < end ? p.lse[static_cast<int64_t>(blockIdx.y) * all + row] : -INFINITY;
      int to = row;
      if constexpr (Packed) to = blockIdx.x * sum_rows + r;
      p.lse_2[padded + to] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
      const bool less = p.d_lse != nullptr && row < end;
      p.d_sum[padded + to] = less ? sum - p.d_lse[static_cast<int64_t>(blockIdx.y) * all + row] : sum;
    }
  }
  const int64_t block = padded / sum_rows + blockIdx.x;
  if (p.turns != nullptr) {
    if (threadIdx.x < HeadDim / 64) p.turns[block * (HeadDim / 64) + threadIdx.x] = 0;
    if constexpr (!Packed) return;  // of packed sequences no block may come to queries that see no key
  }
  float4* const to = reinterpret_cast<float4*>(p.dq_sums + block * (sum_rows * HeadDim));
#pragma unroll
  for (int i = 0; i < sum_rows * HeadDim / 4 / small_threads; ++i) {
    to[i * small_threads + threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
#endif
}

// A block has 64 queries of a head, as above; 128 threads have 64 columns.
template <typename T, int HeadDim, bool Packed>
__global__ void __launch_bounds__(HeadDim * 2) finish(const FinishParametersOf<Packed> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int panels = HeadDim / 64, pitch = HeadDim + 8;
  __shared__ __align__(16) T tile[sum_rows * pitch];
  ptx::griddepcontrol_wait();
  [[maybe_unused]] HalfSlot rows{};
  if constexpr (Packed) {
    rows = HalfSlot::of(p);
    if (!rows.some) return;
  }
  const int panel = threadIdx.x / 128, t = threadIdx.x % 128;
  const int64_t block = (static_cast<int64_t>(blockIdx.y) * (p.padded_q / sum_rows) + blockIdx.x) * panels + panel;
  const float4* const from = reinterpret_cast<const float4*>(p.dq_sums + block * sum_floats) + t;
  const int row = t / 32 * 16 + t % 32 / 4, column = panel * 64 + t % 4 * 2;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 x = from[j * 128];
    T* const to = tile + row * pitch + column + j * 8;
    *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(x.x * p.scale, x.y * p.scale);
    *reinterpret_cast<uint32_t*>(to + 8 * pitch) = pack_pair<T>(x.z * p.scale, x.w * p.scale);
  }
  __syncthreads();
  constexpr int chunks = HeadDim / 8;
  int first = blockIdx.x * sum_rows, end = p.seq_q;
  T* dq = static_cast<T*>(p.dq) + (static_cast<int64_t>(blockIdx.y) * p.seq_q + first) * p.head_dim;
  if constexpr (Packed) {
    first = rows.first, end = rows.end;
    dq = static_cast<T*>(p.dq) + blockIdx.y * p.dq_stride.head + first * p.dq_stride.seq;
  }
  for (int i = threadIdx.x; i < sum_rows * chunks; i += HeadDim * 2) {
    const int r = i / chunks, column = i % chunks * 8;
    if (first + r >= end) break;
    const T* const from = tile + r * pitch + column;
    const auto begin = [&] {
      if constexpr (Packed) {
        return r * p.dq_stride.seq;
      } else {
        return r * p.head_dim;
      }
    };
    T* const to = dq + begin() + column;
    if (p.head_dim % 8 == 0) {
      if (column < p.head_dim) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int c = 0; c < 8 && column + c < p.head_dim; ++c) to[c] = from[c];
    }
  }
#endif
}

}  // namespace cuda_llm_ops::cuda::backward
