// Kernels for head_dim up to 96.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 96, 128, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x96"), {.misaligned = 1.45}),
      plain<T, 96, 128, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x96, paired"),
                                                  {.full = 1.005, .causal = 1.025, .misaligned = 1.035}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d96(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
