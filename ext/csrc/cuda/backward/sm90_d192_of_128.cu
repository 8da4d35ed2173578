// The Hopper backward for head_dim 192 with a V of 128.
#include "sm90_wide.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T, Way Is>
using D192of128 = WideConfig<T, 192, 128, Is>;

Family family_192_of_128() {
  static const Instance instances[] = {
      instance<D192of128<__half, Way::free_order>>(GradientType::float16, "sm90_backward_d192_of_128_float16"),
      instance<D192of128<__half, Way::in_turn>>(GradientType::float16,
                                                "sm90_backward_d192_of_128_float16_deterministic"),
      instance<D192of128<__nv_bfloat16, Way::free_order>>(GradientType::bfloat16, "sm90_backward_d192_of_128_bfloat16"),
      instance<D192of128<__nv_bfloat16, Way::in_turn>>(GradientType::bfloat16,
                                                       "sm90_backward_d192_of_128_bfloat16_deterministic"),
      instance<D192of128<__half, Way::window>>(GradientType::float16, "sm90_backward_d192_of_128_float16_window"),
      instance<D192of128<__nv_bfloat16, Way::window>>(GradientType::bfloat16,
                                                      "sm90_backward_d192_of_128_bfloat16_window"),
  };
  return {instances, 6};
}

}  // namespace cuda_llm_ops::cuda::backward
