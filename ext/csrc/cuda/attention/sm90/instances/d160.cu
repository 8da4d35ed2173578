// Kernels for head_dim up to 160.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 160, 112, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x160"), {.misaligned = 1.3}),
      plain<T, 160, 112, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x160, paired"),
                                                   {.misaligned = 1.03}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d160(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
