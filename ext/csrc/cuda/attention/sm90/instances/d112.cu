// Kernels for head_dim up to 112.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 112, 128, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x112"), {.misaligned = 1.3}),
      plain<T, 112, 128, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x112, paired"),
                                                   {.full = 1.035, .causal = 1.03}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d112(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
