// The decode operator: schema, argument checks and dispatch to the kernels of decode.h, through torch's stable ABI.
#include "tensors.h"

#include "decode_checks.h"

namespace cuda_llm_ops {
namespace {

constexpr const char* kOp = "flash_decode";

template <bool cuda>
Tensor flash_decode(Tensor q_given, Tensor k, Tensor v, Tensor lens, std::optional<Tensor> table,
                    std::optional<double> scale) {
  check_decode(kOp, q_given, k, v, lens, table, [&](const char* name, const Tensor& cache) {
    check_dtype(kOp, name, cache, true);
    check_same_dtype(kOp, name, cache, "q", q_given);
  });
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

  DecodeArguments arguments;
  describe_decode(q, k, v, lens, table, factor, arguments);
  arguments.out = out.mutable_data_ptr();
  if constexpr (cuda) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    launch_with_workspace(kOp, "partial results", q, cuda::decode_workspace_bytes(arguments), arguments,
                          cuda::flash_decode);
#endif
  } else {
    check_values(kOp, arguments);
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
