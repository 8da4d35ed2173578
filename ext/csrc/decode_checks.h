// Checks of the decode operators' arguments, and what the kernels take instead of them. Include after tensors.h, which
// sets the ABI's version.
#pragma once

#include <algorithm>
#include <optional>

#include "attention_checks.h"
#include "decode.h"

namespace cuda_llm_ops {

// The caches as (page, slot, kv head, head_dim), whichever way they are stored: contiguous ones are pages of capacity
// keys, one a sequence.
struct Cache {
  int64_t pages, page_size, kv_heads;
  CacheStrides stride;
};

inline Cache describe(const Tensor& cache, bool paged) {
  const auto sizes = cache.sizes();
  const auto strides = cache.strides();
  const int slot = paged ? 1 : 2, head = paged ? 2 : 1;
  const auto step = [&](int i) { return sizes[i] == 1 ? 0 : strides[i]; };
  return {sizes[0], sizes[slot], sizes[head], {step(0), step(slot), step(head)}};
}

template <typename CheckNumbers>
void check_cache(const char* op, const char* name, const Tensor& cache, const Tensor& q, bool paged,
                 const CheckNumbers& check_numbers) {
  check_rank(op, name, cache, 4,
             paged ? "(pages, page_size, kv_heads, head_dim) with a block_table"
                   : "(batch, kv_heads, capacity, head_dim) without a block_table");
  check_numbers(name, cache);
  check_same_device(op, name, cache, "q", q);
  for (int i = 0; i < 4; ++i) {
    if (cache.size(i) > kMaxElements) {
      fail("ValueError", op, name, " has shape ", shape_text(cache), "; every size must be below 2**31");
    }
  }
  if (cache.size(3) != q.size(3)) {
    fail("ValueError", op, name, " has head_dim ", cache.size(3), " but q has ", q.size(3), " (", name, " ",
         shape_text(cache), ", q ", shape_text(q), "); they must be equal");
  }
  if (cache.size(3) > 1 && cache.stride(3) != 1) {
    fail("ValueError", op, name, " of shape ", shape_text(cache), " has strides ",
         shape_text(cache.strides().data(), 4), "; that of head_dim must be 1 (a cache is not copied)");
  }
}

inline void check_index(const char* op, const char* name, const Tensor& index, const Tensor& q, int64_t rank,
                        const char* layout) {
  check_rank(op, name, index, rank, layout);
  if (index.scalar_type() != Dtype::Int) {
    fail("TypeError", op, name, " is ", dtype_text(index.scalar_type()), "; it must be int32");
  }
  check_same_device(op, name, index, "q", q);
  if (index.size(0) != q.size(0)) {
    fail("ValueError", op, name, " has shape ", shape_text(index), " but q has batch ", q.size(0),
         "; its first size must be the batch");
  }
}

// `check_numbers(name, cache)` refuses the dtype of a cache.
template <typename CheckNumbers>
void check_decode(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lens,
                  const std::optional<Tensor>& table, const CheckNumbers& check_numbers) {
  check_defined(op, "q", q);
  check_defined(op, "k_cache", k);
  check_defined(op, "v_cache", v);
  check_defined(op, "cache_lens", lens);
  check_rank(op, "q", q, 4, "(batch, heads, seq_q, head_dim)");
  check_dtype(op, "q", q, true);
  if (q.size(3) > kMaxHeadDim) {
    fail("NotImplementedError", op, "q has head_dim ", q.size(3), "; it must be at most ", kMaxHeadDim);
  }
  check_cache(op, "k_cache", k, q, table.has_value(), check_numbers);
  check_cache(op, "v_cache", v, q, table.has_value(), check_numbers);
  for (int i = 0; i < 4; ++i) {
    if (v.size(i) != k.size(i)) {
      fail("ValueError", op, "v_cache has shape ", shape_text(v), " but k_cache has ", shape_text(k),
           "; they must be equal");
    }
  }
  check_index(op, "cache_lens", lens, q, 1, "(batch,)");
  if (table.has_value()) {
    check_index(op, "block_table", *table, q, 2, "(batch, pages of a sequence)");
  } else if (k.size(0) != q.size(0)) {
    fail("ValueError", op, "k_cache has batch ", k.size(0), " but q has ", q.size(0), " (k_cache ", shape_text(k),
         ", q ", shape_text(q), "); they must be equal");
  }
  const int64_t heads = q.size(1), kv_heads = describe(k, table.has_value()).kv_heads;
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", op, "q has ", heads, " heads and k_cache has ", kv_heads,
         "; the heads of q must be a multiple of the heads of the caches");
  }
  check_extent(op, "q", q);
  check_output_elements(op, {q.size(0), q.size(1), q.size(2), q.size(3)});
}

// Checks of values, on the CPU only: on CUDA the host would have to wait for the device.
inline void check_values(const char* op, const DecodeArguments& a) {
  for (int64_t b = 0; b < a.batch; ++b) {
    const int64_t len = a.cache_lens[b * a.lens_stride];
    if (len < 0 || len > a.capacity) {
      fail("ValueError", op, "cache_lens[", b, "] is ", len, "; it must be in 0 to ", int64_t{a.capacity},
           ", the keys that the cache holds of a sequence");
    }
    for (int64_t i = 0; a.block_table != nullptr && i * a.page_size < len; ++i) {
      const int64_t page = a.block_table[b * a.table_stride_batch + i * a.table_stride_page];
      if (page < 0 || page >= a.num_pages) {
        fail("ValueError", op, "block_table[", b, ", ", i, "] is ", page, "; it must be in 0 to ",
             int64_t{a.num_pages} - 1, ", the pages of k_cache");
      }
    }
  }
}

// Keys that a sequence may have.
inline int64_t capacity_of(const Tensor& k, const std::optional<Tensor>& table) {
  const Cache cache = describe(k, table.has_value());
  return table.has_value() ? std::min(table->size(1) * cache.page_size, kMaxElements) : cache.page_size;
}

// What both operators' kernels take, but for the output's and the workspace's pointers. `q` has a stride of 1 along
// head_dim. No extent is 0.
inline void describe_decode(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lens,
                            const std::optional<Tensor>& table, float scale, DecodeArguments& arguments) {
  const Cache cache = describe(k, table.has_value());
  arguments.q = q.const_data_ptr();
  arguments.k = k.const_data_ptr();
  arguments.v = v.const_data_ptr();
  arguments.cache_lens = static_cast<const int32_t*>(lens.const_data_ptr());
  arguments.lens_stride = lens.stride(0);
  if (table.has_value()) {
    arguments.block_table = static_cast<const int32_t*>(table->const_data_ptr());
    arguments.table_stride_batch = table->stride(0);
    arguments.table_stride_page = table->stride(1);
  }
  arguments.batch = static_cast<int32_t>(q.size(0));
  arguments.heads = static_cast<int32_t>(q.size(1));
  arguments.seq_q = static_cast<int32_t>(q.size(2));
  arguments.head_dim = static_cast<int32_t>(q.size(3));
  arguments.kv_heads = static_cast<int32_t>(cache.kv_heads);
  arguments.capacity = static_cast<int32_t>(capacity_of(k, table));
  arguments.page_size = static_cast<int32_t>(cache.page_size);
  arguments.num_pages = static_cast<int32_t>(cache.pages);
  arguments.q_stride = head_strides(q);
  arguments.k_stride = cache.stride;
  arguments.v_stride = describe(v, table.has_value()).stride;
  arguments.scale = scale;
  arguments.type = kernel_type(q.scalar_type());
}

}  // namespace cuda_llm_ops
