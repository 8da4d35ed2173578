// The decode operator: schema, argument checks and dispatch to the kernels of decode.h, through torch's stable ABI.
#include "attention_checks.h"
#include "decode.h"

namespace cuda_llm_ops {
namespace {

constexpr const char* kOp = "flash_decode";

// The caches as (page, slot, kv head, head_dim), whichever way they are stored: contiguous ones are pages of capacity
// keys, one a sequence.
struct Cache {
  int64_t pages, page_size, kv_heads;
  CacheStrides stride;
};

Cache describe(const Tensor& cache, bool paged) {
  const auto sizes = cache.sizes();
  const auto strides = cache.strides();
  const int slot = paged ? 1 : 2, head = paged ? 2 : 1;
  const auto step = [&](int i) { return sizes[i] == 1 ? 0 : strides[i]; };
  return {sizes[0], sizes[slot], sizes[head], {step(0), step(slot), step(head)}};
}

void check_cache(const char* name, const Tensor& cache, const Tensor& q, bool paged) {
  check_rank(kOp, name, cache, 4,
             paged ? "(pages, page_size, kv_heads, head_dim) with a block_table"
                   : "(batch, kv_heads, capacity, head_dim) without a block_table");
  check_dtype(kOp, name, cache, true);
  check_same_dtype(kOp, name, cache, "q", q);
  check_same_device(kOp, name, cache, "q", q);
  for (int i = 0; i < 4; ++i) {
    if (cache.size(i) > kMaxElements) {
      fail("ValueError", kOp, name, " has shape ", shape_text(cache), "; every size must be below 2**31");
    }
  }
  if (cache.size(3) != q.size(3)) {
    fail("ValueError", kOp, name, " has head_dim ", cache.size(3), " but q has ", q.size(3), " (", name, " ",
         shape_text(cache), ", q ", shape_text(q), "); they must be equal");
  }
  if (cache.size(3) > 1 && cache.stride(3) != 1) {
    fail("ValueError", kOp, name, " of shape ", shape_text(cache), " has strides ",
         shape_text(cache.strides().data(), 4), "; that of head_dim must be 1 (a cache is not copied)");
  }
}

void check_index(const char* name, const Tensor& index, const Tensor& q, int64_t rank, const char* layout) {
  check_rank(kOp, name, index, rank, layout);
  if (index.scalar_type() != Dtype::Int) {
    fail("TypeError", kOp, name, " is ", dtype_text(index.scalar_type()), "; it must be int32");
  }
  check_same_device(kOp, name, index, "q", q);
  if (index.size(0) != q.size(0)) {
    fail("ValueError", kOp, name, " has shape ", shape_text(index), " but q has batch ", q.size(0),
         "; its first size must be the batch");
  }
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lens, const std::optional<Tensor>& table) {
  check_defined(kOp, "q", q);
  check_defined(kOp, "k_cache", k);
  check_defined(kOp, "v_cache", v);
  check_defined(kOp, "cache_lens", lens);
  check_rank(kOp, "q", q, 4, "(batch, heads, seq_q, head_dim)");
  check_dtype(kOp, "q", q, true);
  if (q.size(3) > kMaxHeadDim) {
    fail("NotImplementedError", kOp, "q has head_dim ", q.size(3), "; it must be at most ", kMaxHeadDim);
  }
  check_cache("k_cache", k, q, table.has_value());
  check_cache("v_cache", v, q, table.has_value());
  for (int i = 0; i < 4; ++i) {
    if (v.size(i) != k.size(i)) {
      fail("ValueError", kOp, "v_cache has shape ", shape_text(v), " but k_cache has ", shape_text(k),
           "; they must be equal");
    }
  }
  check_index("cache_lens", lens, q, 1, "(batch,)");
  if (table.has_value()) {
    check_index("block_table", *table, q, 2, "(batch, pages of a sequence)");
  } else if (k.size(0) != q.size(0)) {
    fail("ValueError", kOp, "k_cache has batch ", k.size(0), " but q has ", q.size(0), " (k_cache ", shape_text(k),
         ", q ", shape_text(q), "); they must be equal");
  }
  const int64_t heads = q.size(1), kv_heads = describe(k, table.has_value()).kv_heads;
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("ValueError", kOp, "q has ", heads, " heads and k_cache has ", kv_heads,
         "; the heads of q must be a multiple of the heads of the caches");
  }
  check_extent(kOp, "q", q);
  check_output_elements(kOp, {q.size(0), q.size(1), q.size(2), q.size(3)});
}

// Checks of values, on the CPU only: on CUDA the host would have to wait for the device.
void check_values(const DecodeArguments& a) {
  for (int64_t b = 0; b < a.batch; ++b) {
    const int64_t len = a.cache_lens[b * a.lens_stride];
    if (len < 0 || len > a.capacity) {
      fail("ValueError", kOp, "cache_lens[", b, "] is ", len, "; it must be in 0 to ", int64_t{a.capacity},
           ", the keys that the cache holds of a sequence");
    }
    for (int64_t i = 0; a.block_table != nullptr && i * a.page_size < len; ++i) {
      const int64_t page = a.block_table[b * a.table_stride_batch + i * a.table_stride_page];
      if (page < 0 || page >= a.num_pages) {
        fail("ValueError", kOp, "block_table[", b, ", ", i, "] is ", page, "; it must be in 0 to ",
             int64_t{a.num_pages} - 1, ", the pages of k_cache");
      }
    }
  }
}

template <bool cuda>
Tensor flash_decode(Tensor q_given, Tensor k, Tensor v, Tensor lens, std::optional<Tensor> table,
                    std::optional<double> scale) {
  check(q_given, k, v, lens, table);
  const float factor = attention_scale(kOp, scale, q_given.size(3));
  const OnDeviceOf<cuda> on_device(q_given);
  const int64_t batch = q_given.size(0), heads = q_given.size(1), seq_q = q_given.size(2), head_dim = q_given.size(3);
  Tensor out = allocate(kOp, "output", q_given, q_given.scalar_type(), {batch, heads, seq_q, head_dim});
  if (out.numel() == 0) {
    return out;
  }
  const Cache cache = describe(k, table.has_value());
  const int64_t capacity =
      table.has_value() ? std::min(table->size(1) * cache.page_size, kMaxElements) : cache.page_size;
  if (capacity == 0 || cache.pages == 0) {  // no room for a key
    return zero(kOp, out);
  }
  const Tensor q = with_unit_last_stride(kOp, "q", q_given);

  DecodeArguments arguments;
  arguments.q = q.const_data_ptr();
  arguments.k = k.const_data_ptr();
  arguments.v = v.const_data_ptr();
  arguments.out = out.mutable_data_ptr();
  arguments.cache_lens = static_cast<const int32_t*>(lens.const_data_ptr());
  arguments.lens_stride = lens.stride(0);
  if (table.has_value()) {
    arguments.block_table = static_cast<const int32_t*>(table->const_data_ptr());
    arguments.table_stride_batch = table->stride(0);
    arguments.table_stride_page = table->stride(1);
  }
  arguments.batch = static_cast<int32_t>(batch);
  arguments.heads = static_cast<int32_t>(heads);
  arguments.kv_heads = static_cast<int32_t>(cache.kv_heads);
  arguments.seq_q = static_cast<int32_t>(seq_q);
  arguments.head_dim = static_cast<int32_t>(head_dim);
  arguments.capacity = static_cast<int32_t>(capacity);
  arguments.page_size = static_cast<int32_t>(cache.page_size);
  arguments.num_pages = static_cast<int32_t>(cache.pages);
  arguments.q_stride = head_strides(q);
  arguments.k_stride = cache.stride;
  arguments.v_stride = describe(v, table.has_value()).stride;
  arguments.scale = factor;
  arguments.type = kernel_type(q.scalar_type());

  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_with_workspace(kOp, "partial results", q, cuda::decode_workspace_bytes(arguments), arguments,
                          cuda::flash_decode);
#endif
  } else {
    check_values(arguments);
    cpu::flash_decode(arguments, parallel);
  }
  return out;
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "flash_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor cache_lens, Tensor? block_table=None, "
      "float? scale=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) {
  library.impl("flash_decode", TORCH_BOX(&cuda_llm_ops::flash_decode<false>));
}

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) {
  library.impl("flash_decode", TORCH_BOX(&cuda_llm_ops::flash_decode<true>));
}
#endif
