// The decode operator for 8-bit caches: schema, argument checks and dispatch to the kernels of decode_quantised.h. To
// users it is flash_decode with 8-bit caches, so it reports errors under that name. It is an operator of its own because
// autocast must leave the caches and their scales as they are.
#include "tensors.h"

#include "decode_checks.h"
#include "decode_quantised.h"

namespace cuda_llm_ops {
namespace {

constexpr const char* kOp = "flash_decode";

bool is_8bit(Dtype dtype) { return dtype == Dtype::Float8_e4m3fn || dtype == Dtype::Char; }

// The strides of a scale by (page, slot, kv head) of a cache, after its checks.
CacheStrides check_scale(const char* name, const Tensor& scale, const char* cache_name, const Tensor& cache,
                         bool paged) {
  if (scale.scalar_type() != Dtype::Float) {
    fail("TypeError", kOp, name, " is ", dtype_text(scale.scalar_type()), "; it must be float32");
  }
  check_same_device(kOp, name, scale, cache_name, cache);
  const int head = paged ? 2 : 1, slot = paged ? 1 : 2;
  const auto step = [&](int i) { return scale.size(i) == 1 ? 0 : scale.stride(i); };
  if (scale.dim() == 0) return {};
  if (scale.dim() == 1 && scale.size(0) == cache.size(head)) return {0, 0, step(0)};
  if (scale.dim() == 3 && scale.size(0) == cache.size(0) && scale.size(1) == cache.size(1) &&
      scale.size(2) == cache.size(2)) {
    return {step(0), step(slot), step(head)};
  }
  fail("ValueError", kOp, name, " has shape ", shape_text(scale), " but ", cache_name, " has ", shape_text(cache),
       "; it must have no dimension (one scale), (kv_heads,), or the shape of ", cache_name, " without head_dim");
}

template <bool cuda>
Tensor flash_decode_quantised(Tensor q_given, Tensor k, Tensor v, Tensor lens, std::optional<Tensor> table,
                              std::optional<Tensor> k_scale, std::optional<Tensor> v_scale,
                              std::optional<double> scale) {
  check_decode(kOp, q_given, k, v, lens, table, [&](const char* name, const Tensor& cache) {
    if (!is_8bit(cache.scalar_type())) {
      fail("TypeError", kOp, name, " is ", dtype_text(cache.scalar_type()),
           "; a cache with scales must be float8_e4m3fn or int8");
    }
    check_same_dtype(kOp, name, cache, "k_cache", k);
  });
  if (k_scale.has_value() != v_scale.has_value()) {
    fail("ValueError", kOp, k_scale.has_value() ? "v_scale" : "k_scale", " is None; give both scales or neither");
  }
  QuantisedDecodeArguments arguments;
  if (k_scale.has_value()) {
    arguments.k_scale_stride = check_scale("k_scale", *k_scale, "k_cache", k, table.has_value());
    arguments.v_scale_stride = check_scale("v_scale", *v_scale, "v_cache", v, table.has_value());
  }
  const float factor = attention_scale(kOp, scale, q_given.size(3));
  const OnDeviceOf<cuda> on_device(q_given);
  Tensor out = allocate(kOp, "output", q_given, q_given.scalar_type(),
                        {q_given.size(0), q_given.size(1), q_given.size(2), q_given.size(3)});
  if (out.numel() == 0) {
    return out;
  }
  if (capacity_of(k, table) == 0 || k.size(0) == 0) {  // no room for a key
    return zero(kOp, out);
  }
  const Tensor q = with_unit_last_stride(kOp, "q", q_given);

  describe_decode(q, k, v, lens, table, factor, arguments);
  arguments.out = out.mutable_data_ptr();
  arguments.cache_type = k.scalar_type() == Dtype::Char ? CacheType::int8 : CacheType::e4m3;
  if (k_scale.has_value()) {
    arguments.k_scale = static_cast<const float*>(k_scale->const_data_ptr());
    arguments.v_scale = static_cast<const float*>(v_scale->const_data_ptr());
  }
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_with_workspace(kOp, "partial results", q, cuda::quantised_decode_workspace_bytes(arguments), arguments,
                          cuda::quantised_decode);
#endif
  } else {
    check_values(kOp, arguments);
    cpu::quantised_decode(arguments, parallel);
  }
  return out;
}

}  // namespace
}  // namespace cuda_llm_ops

STABLE_TORCH_LIBRARY_FRAGMENT(cuda_llm_ops, library) {
  library.def(
      "flash_decode_quantised(Tensor q, Tensor k_cache, Tensor v_cache, Tensor cache_lens, Tensor? block_table=None, "
      "Tensor? k_scale=None, Tensor? v_scale=None, float? scale=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CPU, library) {
  library.impl("flash_decode_quantised", TORCH_BOX(&cuda_llm_ops::flash_decode_quantised<false>));
}

#ifdef CUDA_LLM_OPS_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(cuda_llm_ops, CUDA, library) {
  library.impl("flash_decode_quantised", TORCH_BOX(&cuda_llm_ops::flash_decode_quantised<true>));
}
#endif
