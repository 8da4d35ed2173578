// Kernels for rows of any alignment, head_dim 113 to 135.
#include "../instances.h"
#include "../realigned.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      realigned<T, 128, 113, 128, 56>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x128, packed")),
      realigned<T, 136, 129, 128, 56>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x136, packed")),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_realigned_d128_d136(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
