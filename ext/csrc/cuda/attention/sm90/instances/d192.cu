// Kernels for head_dim up to 192, also with a V of up to 128 columns.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 192, 96, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x192"), {.misaligned = 1.107}),
      plain<T, 192, 96, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x192, paired"),
                                                  {.causal = 1.075, .misaligned = 1.03}),
      plain<T, 192, 128, 2, ping_pong, 128>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x192, V of 128")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d192(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
