// The interface between the decode operator (decode_ops.cpp) and its kernels, like kernels.h for the other operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace cuda_llm_ops {

// A cache of keys or values. Key j of sequence b, head h is at
//   page(b, j / page_size) * stride.page + (j % page_size) * stride.slot + h * stride.head
// where page(b, i) is block_table[b, i], or b where there is no table (then page_size is the capacity).
struct CacheStrides {
  int64_t page = 0, slot = 0, head = 0;  // elements, any size; head_dim's stride is 1
};

// out = softmax(scale q k^T) v for the last seq_q tokens of each sequence, against the cache that holds them all:
// query i of sequence b sees the keys j < cache_lens[b] - (seq_q - 1 - i), and gives zeros if it sees no key.
// Query head h reads kv head h / (heads / kv_heads). Offsets into q and out fit in 31 bits, those into the caches and
// the table need not.
struct DecodeArguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;                   // (batch, heads, seq_q, head_dim), dense
  const int32_t* cache_lens = nullptr;   // (batch,), on the device of q
  const int32_t* block_table = nullptr;  // (batch, pages_per_sequence), or nullptr
  int32_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, head_dim = 0;
  int32_t capacity = 0;                  // keys a sequence may have: no length is taken as more
  int32_t page_size = 0, num_pages = 0;  // num_pages: of the pool; batch without a table
  HeadStrides q_stride;
  CacheStrides k_stride, v_stride;
  int64_t lens_stride = 1, table_stride_batch = 0, table_stride_page = 1;
  float scale = 1.0f;
  ScalarType type = ScalarType::float32;
  void* workspace = nullptr;  // CUDA: decode_workspace_bytes() bytes, 256-byte aligned
};

namespace cpu {
// Every length is within [0, capacity] and every page that a length reaches within [0, num_pages).
void flash_decode(const DecodeArguments& arguments, const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
// A length outside [0, capacity] is taken as the nearest bound; a page outside [0, num_pages) reads as zeros.
size_t decode_workspace_bytes(const DecodeArguments& arguments);
const char* flash_decode(const DecodeArguments& arguments, void* stream);
void decode_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
