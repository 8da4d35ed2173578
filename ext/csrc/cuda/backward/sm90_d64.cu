// The Hopper backward for head_dim 64: tiles of 128 queries by 128 keys.
#include "sm90_backward.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T, bool Deterministic>
using D64 = Config<T, 64, 128, Deterministic>;

Family family_64() {
  static const Instance instances[] = {
      instance<D64<__half, false>>(GradientType::float16, "sm90_backward_d64_float16"),
      instance<D64<__half, true>>(GradientType::float16, "sm90_backward_d64_float16_deterministic"),
      instance<D64<__nv_bfloat16, false>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16"),
      instance<D64<__nv_bfloat16, true>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16_deterministic"),
  };
  return {instances, 4};
}

}  // namespace cuda_llm_ops::cuda::backward
