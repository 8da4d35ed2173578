// Zeros in the rows of out that belong to no group, by threads that have nothing else to do.
#pragma once

#include "../groups.cuh"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// From one even address to another, 16 bytes at a time; the first threads take what is left at both ends.
__device__ __forceinline__ void clear_bytes(char* from, char* to, int64_t thread, int64_t threads) {
  char* const first = from + (16 - reinterpret_cast<uintptr_t>(from) % 16) % 16;
  char* const last = to - reinterpret_cast<uintptr_t>(to) % 16;
#pragma unroll 1
  for (char* at = first + thread * 16; at < last; at += threads * 16) {
    *reinterpret_cast<uint4*>(at) = make_uint4(0, 0, 0, 0);
  }
  if (thread >= 8) return;
  char* const head = from + thread * 2;
  char* const tail = (last < first ? first : last) + thread * 2;
  if (head < first && head < to) *reinterpret_cast<uint16_t*>(head) = 0;
  if (tail < to) *reinterpret_cast<uint16_t*>(tail) = 0;
}

// The rows behind those of each group where groups have room for more, and behind those of the last one.
__device__ __forceinline__ void clear_other_rows(const Fp8GemmArguments& g, int64_t thread, int64_t threads) {
  const int64_t row_bytes = int64_t{g.n} * (g.out_type == ScalarType::float32 ? 4 : 2);
  char* const out = static_cast<char*>(g.out);
#pragma unroll 1
  for (int group = g.capacity > 0 ? 0 : g.groups - 1; group < g.groups; ++group) {
    const int first = group_rows(g.group_sizes, group, g.capacity, g.m).end;
    const int end = g.capacity > 0 ? (group + 1) * g.capacity : g.m;
    if (first < end) clear_bytes(out + first * row_bytes, out + end * row_bytes, thread, threads);
  }
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
