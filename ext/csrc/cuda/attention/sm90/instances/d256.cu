// Kernels for head_dim up to 256.
#include "../instances.h"
#include "../plain.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      plain<T, 256, 64, 2, no_ways>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x256")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d256(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
