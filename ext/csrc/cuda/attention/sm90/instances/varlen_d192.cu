// Kernels with AttentionOptions for head_dim up to 192, also with a V of up to 128 columns.
#include "../varlen.cuh"

namespace cuda_llm_ops::cuda::sm90::varlen {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      instance<T, 192, 96, 2, true>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma general 128x192")),
      instance<T, 192, 128, 2, true, 128>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma general 128x192, V of 128")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d192(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::varlen
