// Kernels for head_dim up to 128.
#include "../instances.h"
#include "../plain.cuh"
#include "../split_keys.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 128, 128, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x128"), {.misaligned = 1.25}),
      plain<T, 128, 128, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x128, paired"),
                                                   {.causal = 1.015, .misaligned = 1.14}),
      split_keys<T, 128, 64, 4>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 64x128, split keys"), {.full = 1.2, .causal = 1.2}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d128(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
