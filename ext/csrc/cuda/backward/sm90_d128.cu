// The Hopper backward for head_dim 128: tiles of 64 queries by 128 keys.
#include "sm90_backward.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T, bool Deterministic>
using D128 = Config<T, 128, 64, Deterministic>;

Family family_128() {
  static const Instance instances[] = {
      instance<D128<__half, false>>(GradientType::float16, "sm90_backward_d128_float16"),
      instance<D128<__half, true>>(GradientType::float16, "sm90_backward_d128_float16_deterministic"),
      instance<D128<__nv_bfloat16, false>>(GradientType::bfloat16, "sm90_backward_d128_bfloat16"),
      instance<D128<__nv_bfloat16, true>>(GradientType::bfloat16, "sm90_backward_d128_bfloat16_deterministic"),
  };
  return {instances, 4};
}

}  // namespace cuda_llm_ops::cuda::backward
