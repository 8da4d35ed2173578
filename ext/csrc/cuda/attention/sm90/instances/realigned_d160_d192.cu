// Kernels for rows of any alignment, head_dim 136 to 192.
#include "../instances.h"
#include "../realigned.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      realigned<T, 160, 136, 64, 72>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x160, packed")),
      realigned<T, 192, 161, 64, 80>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x192, packed")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_realigned_d160_d192(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
