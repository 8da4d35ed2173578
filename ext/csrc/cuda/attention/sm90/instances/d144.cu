// Kernels for head_dim up to 144.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 144, 112, 2, ping_pong>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x144"), {.misaligned = 1.32}),
      plain<T, 144, 112, 2, ping_pong | multicast>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 256x144, paired"),
                                                   {.full = 0.986, .misaligned = 1.033}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d144(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
