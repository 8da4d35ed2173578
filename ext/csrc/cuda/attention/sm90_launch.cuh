// Host side of a flash kernel: tensor maps, the order of the tiles, the launch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "../tensor_map.h"
#include "sm90_flash.cuh"

namespace cuda_llm_ops::cuda::sm90 {

inline TensorMapArguments head_map(const void* pointer, ScalarType type, int head_dim, int seq, int heads, int batch,
                                   const HeadStrides& stride, int box_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 4;
  const int64_t sizes[] = {head_dim, seq, heads, batch};
  const int64_t strides[] = {1, stride.seq, stride.head, stride.batch};
  const int64_t dense = (static_cast<int64_t>(head_dim) + 7) / 8 * 8;
  for (int i = 0; i < 4; ++i) {
    map.size[i] = static_cast<uint64_t>(sizes[i]);
    // The stride of an extent of 1 is never used, and may be anything.
    map.stride_bytes[i] = static_cast<uint64_t>(sizes[i] == 1 ? dense : strides[i]) * 2;
  }
  map.box[0] = 64;
  map.box[1] = static_cast<uint32_t>(box_rows);
  map.box[2] = map.box[3] = 1;
  return map;
}

// K and V of this many bytes stay in the L2 while a section of heads is worked on.
constexpr int64_t section_bytes = int64_t{24} << 20;

// Longest tile first needs many heads at once, L2 reuse few; pairs of equal length need neither, but enough of them.
inline void order_tiles(FlashParameters& p, int block_m, int kv_heads, int batch, int blocks) {
  p.schedule = Schedule::linear;
  p.section = p.batch_heads;
  if (!p.causal) return;
  p.schedule = Schedule::snake;
  const int64_t head_bytes = int64_t{4} * p.head_dim * p.seq_kv;
  const int64_t kv_in_section = std::max<int64_t>(1, section_bytes / head_bytes);
  if (kv_in_section < int64_t{kv_heads} * batch) {
    p.section = static_cast<int32_t>(std::min<int64_t>(p.batch_heads, kv_in_section * p.group));
  }
  // In units of one query tile's share of a full square: rounds of pairs, against the even share of single tiles.
  const int64_t pairs = int64_t{(p.m_tiles + 1) / 2} * p.batch_heads;
  const double pair_rounds = static_cast<double>((pairs + blocks - 1) / blocks) * (p.m_tiles + 1);
  const double even = static_cast<double>(pairs) * (p.m_tiles + 1) / blocks;
  (void)block_m;
  if (even / pair_rounds >= 0.92) p.schedule = Schedule::pairs;
}

template <typename C>
bool request_shared() {
  static std::atomic<uint64_t> ready{0};  // a bit a device
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const uint64_t bit = uint64_t{1} << (device & 63);
  if (ready.load(std::memory_order_relaxed) & bit) return true;
  if (cudaFuncSetAttribute(flash_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::shared_bytes) != cudaSuccess) {
    return false;
  }
  ready.fetch_or(bit, std::memory_order_relaxed);
  return true;
}

template <typename C>
const char* launch_flash(const AttentionArguments& a, int multiprocessors, cudaStream_t stream) {
  FlashParameters p;
  const struct {
    CUtensorMap* map;
    const void* pointer;
    int seq, heads, rows;
    const HeadStrides& stride;
  } tensors[] = {{&p.q, a.q, a.seq_q, a.heads, 64, a.q_stride},
                 {&p.k, a.k, a.seq_kv, a.kv_heads, C::block_n, a.k_stride},
                 {&p.v, a.v, a.seq_kv, a.kv_heads, C::block_n, a.v_stride}};
  for (const auto& t : tensors) {
    const char* error =
        encode_tensor_map(t.map, head_map(t.pointer, a.type, a.head_dim, t.seq, t.heads, a.batch, t.stride, t.rows));
    if (error != nullptr) return error;
  }
  p.out = a.out;
  p.out_batch = a.out_stride.batch;
  p.out_head = a.out_stride.head;
  p.out_seq = a.out_stride.seq;
  p.seq_q = a.seq_q;
  p.seq_kv = a.seq_kv;
  p.head_dim = a.head_dim;
  p.heads = a.heads;
  p.group = a.heads / a.kv_heads;
  p.m_tiles = (a.seq_q + C::block_m - 1) / C::block_m;
  p.batch_heads = a.batch * a.heads;
  p.scale_log2 = a.scale * 1.4426950408889634f;
  p.causal = a.causal;
  const int64_t tiles = int64_t{p.m_tiles} * p.batch_heads;
  const int blocks = static_cast<int>(std::min<int64_t>(multiprocessors, tiles));
  order_tiles(p, C::block_m, a.kv_heads, a.batch, blocks);
  if (!request_shared<C>()) return "CUDA refused the shared memory of a Hopper attention kernel";
  flash_kernel<C><<<blocks, C::threads, C::shared_bytes, stream>>>(p);
  return cudaGetLastError() == cudaSuccess ? nullptr : "CUDA refused to launch a Hopper attention kernel";
}

}  // namespace cuda_llm_ops::cuda::sm90
