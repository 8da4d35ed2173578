// Kernels for rows of any alignment, head_dim 1 to 112.
#include "../instances.h"
#include "../realigned.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      realigned<T, 64, 1, 128, 72>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x64, packed")),
      realigned<T, 96, 65, 128, 72>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x96, packed")),
      realigned<T, 112, 97, 128, 56>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x112, packed")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_realigned_d64_d112(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
