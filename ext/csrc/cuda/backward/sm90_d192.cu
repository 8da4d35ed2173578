// The Hopper backward for head_dim 192.
#include "sm90_wide.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T, Way Is>
using D192 = WideConfig<T, 192, 192, Is>;

Family family_192() {
  static const Instance instances[] = {
      instance<D192<__half, Way::free_order>>(GradientType::float16, "sm90_backward_d192_float16"),
      instance<D192<__half, Way::in_turn>>(GradientType::float16, "sm90_backward_d192_float16_deterministic"),
      instance<D192<__nv_bfloat16, Way::free_order>>(GradientType::bfloat16, "sm90_backward_d192_bfloat16"),
      instance<D192<__nv_bfloat16, Way::in_turn>>(GradientType::bfloat16, "sm90_backward_d192_bfloat16_deterministic"),
      instance<D192<__half, Way::window>>(GradientType::float16, "sm90_backward_d192_float16_window"),
      instance<D192<__nv_bfloat16, Way::window>>(GradientType::bfloat16, "sm90_backward_d192_bfloat16_window"),
  };
  return {instances, 6};
}

}  // namespace cuda_llm_ops::cuda::backward
