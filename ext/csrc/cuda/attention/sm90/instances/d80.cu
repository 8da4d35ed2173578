// Kernels for head_dim up to 80.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 80, 128, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x80"), {.misaligned = 1.36}),
      plain<T, 80, 128, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x80, paired"),
                                                  {.full = 1.013, .causal = 1.05, .misaligned = 1.035}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d80(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
