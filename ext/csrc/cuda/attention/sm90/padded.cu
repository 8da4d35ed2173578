// The copies of padded.h. A warp copies a row of q, k or v: each lane loads the aligned 16 bytes in which its chunk
// begins, has the next 16 from the lane above, and shifts the two together. Back, a thread writes 16 bytes of the
// output, whose rows follow one another.
#include "padded.h"

#include <cstdint>

#include "../../../arithmetic.h"
#include "../../error_text.h"
#include "../../gemm/lines.cuh"
#include "realigned.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPitch = 256;  // elements from row to row of a copy: 32 chunks, one a lane
// Products of a query with a key from which on copies take less time than mma.sync's kernels lose.
constexpr int64_t kLeastProducts = 1 << 17;

struct Copy {
  Rows rows;
  char* to;
  int32_t heads, seq, count;  // count: rows in all
};

struct Copies {
  Copy copy[3];
  int32_t head_dim;
};

__global__ void __launch_bounds__(kThreads) pad_rows(const __grid_constant__ Copies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  int which = 0;
  while (which < 2 && row >= copies.copy[which].count) row -= copies.copy[which++].count;
  const Copy& copy = copies.copy[which];
  if (row >= copy.count) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = row / copy.seq;  // of all batches
  const int64_t offset = head / copy.heads * copy.rows.batch + head % copy.heads * copy.rows.head +
                         static_cast<int64_t>(row - head * copy.seq) * copy.rows.seq;
  const char* const line = static_cast<const char*>(copy.rows.pointer) + offset * 2;
  const char* const end = reinterpret_cast<const char*>(copy.rows.end);
  const uint32_t shift = reinterpret_cast<uintptr_t>(line) % 16;
  const char* const aligned = line - shift + lane * 16;
  const auto load = [&](const char* granule) {
    return granule + 16 <= end ? *reinterpret_cast<const uint4*>(granule) : load_until(granule, end);
  };
  const uint4 low = load(aligned);
  uint4 high = of_next_lane(low);
  if (lane == 31) high = load(aligned + 16);
  *reinterpret_cast<uint4*>(copy.to + int64_t{row} * kPitch * 2 + lane * 16) =
      first_bytes(shifted_chunk(low, high, shift), copies.head_dim * 2 - lane * 16);
#endif
}

// `count`: elements of the output.
__global__ void __launch_bounds__(kThreads)
    unpad_rows(const uint16_t* from, uint16_t* to, uint32_t count, uint32_t head_dim) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (first >= count) return;
  uint32_t row = first / head_dim, column = first - row * head_dim;
  const uint32_t elements = min(count - first, 8u);
  uint32_t words[4] = {};
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    if (i < elements) words[i / 2] |= static_cast<uint32_t>(from[uint64_t{row} * kPitch + column]) << (i % 2 * 16);
    if (++column == head_dim) column = 0, ++row;
  }
  if (elements == 8) {
    *reinterpret_cast<uint4*>(to + first) = make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  for (uint32_t i = 0; i < elements; ++i) to[first + i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
#endif
}

int64_t query_rows(const AttentionArguments& a) { return int64_t{a.batch} * a.heads * a.seq_q; }
int64_t key_rows(const AttentionArguments& a) { return int64_t{a.batch} * a.kv_heads * a.seq_kv; }

// Strides of dense rows of `pitch` elements.
HeadStrides dense(int64_t heads, int64_t seq, int64_t pitch) { return {heads * seq * pitch, seq * pitch, pitch}; }

}  // namespace

bool worth_padding(const AttentionArguments& a) {
  const HeadStrides rows = dense(a.heads, a.seq_q, a.head_dim);
  const bool follow = (a.seq_q == 1 || a.out_stride.seq == rows.seq) &&
                      (a.heads == 1 || a.out_stride.head == rows.head) &&
                      (a.batch == 1 || a.out_stride.batch == rows.batch);
  return follow && reinterpret_cast<uintptr_t>(a.out) % 16 == 0 && a.head_dim > kPitch - 64 && a.head_dim <= kPitch &&
         query_rows(a) * a.seq_kv >= kLeastProducts && (query_rows(a) + key_rows(a)) * kPitch <= INT32_MAX;
}

size_t padded_workspace_bytes(const AttentionArguments& a) {
  return static_cast<size_t>(query_rows(a) + key_rows(a)) * kPitch * 2 * 2;  // q and out, k and v; 2 bytes
}

const char* pad(const AttentionArguments& a, AttentionArguments& padded, cudaStream_t stream) {
  char* const q = static_cast<char*>(a.workspace);
  char* const k = q + query_rows(a) * kPitch * 2;
  char* const v = k + key_rows(a) * kPitch * 2;
  char* const out = v + key_rows(a) * kPitch * 2;
  padded = a;
  padded.q = q, padded.k = k, padded.v = v, padded.out = out;
  padded.q_stride = padded.out_stride = dense(a.heads, a.seq_q, kPitch);
  padded.k_stride = padded.v_stride = dense(a.kv_heads, a.seq_kv, kPitch);
  padded.head_dim = padded.value_dim = ceil_div(a.head_dim, 8) * 8;
  padded.workspace = nullptr;

  const auto queries = static_cast<int32_t>(query_rows(a)), keys = static_cast<int32_t>(key_rows(a));
  Copies copies{{{rows_of(a.q, a, a.seq_q, a.heads, a.q_stride), q, a.heads, a.seq_q, queries},
                 {rows_of(a.k, a, a.seq_kv, a.kv_heads, a.k_stride), k, a.kv_heads, a.seq_kv, keys},
                 {rows_of(a.v, a, a.seq_kv, a.kv_heads, a.v_stride), v, a.kv_heads, a.seq_kv, keys}},
                a.head_dim};
  const auto blocks = static_cast<unsigned>(ceil_div(int64_t{queries} + 2 * int64_t{keys}, kWarps));
  void* parameters[] = {&copies};
  return error_text(
      cudaLaunchKernel(reinterpret_cast<const void*>(&pad_rows), dim3(blocks), dim3(kThreads), parameters, 0, stream));
}

const char* unpad(const AttentionArguments& padded, const AttentionArguments& a, cudaStream_t stream) {
  const void* from = padded.out;
  void* to = a.out;
  auto count = static_cast<uint32_t>(query_rows(a) * a.head_dim), head_dim = static_cast<uint32_t>(a.head_dim);
  void* parameters[] = {&from, &to, &count, &head_dim};
  const dim3 blocks(static_cast<unsigned>(ceil_div(int64_t{count}, kThreads * 8)));
  return error_text(
      cudaLaunchKernel(reinterpret_cast<const void*>(&unpad_rows), blocks, dim3(kThreads), parameters, 0, stream));
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
