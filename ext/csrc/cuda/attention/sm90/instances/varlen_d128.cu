// Kernels with AttentionOptions for head_dim up to 128.
#include "../varlen.cuh"

namespace cuda_llm_ops::cuda::sm90::varlen {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      instance<T, 128, 128, 2, true>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma general 128x128")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d128(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::varlen
