// The Hopper backward for head_dim 64: tiles of 128 queries by 128 keys.
#include "sm90_backward.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename T, Way Is>
using D64 = Config<T, 64, 128, Is>;

Family family_64() {
  static const Instance instances[] = {
      instance<D64<__half, Way::free_order>>(GradientType::float16, "sm90_backward_d64_float16"),
      instance<D64<__half, Way::in_turn>>(GradientType::float16, "sm90_backward_d64_float16_deterministic"),
      instance<D64<__nv_bfloat16, Way::free_order>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16"),
      instance<D64<__nv_bfloat16, Way::in_turn>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16_deterministic"),
      instance<D64<__half, Way::window>>(GradientType::float16, "sm90_backward_d64_float16_window"),
      instance<D64<__nv_bfloat16, Way::window>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16_window"),
      instance<D64<__half, Way::packed>>(GradientType::float16, "sm90_backward_d64_float16_packed"),
      instance<D64<__half, Way::packed_in_turn>>(GradientType::float16,
                                                 "sm90_backward_d64_float16_packed_deterministic"),
      instance<D64<__nv_bfloat16, Way::packed>>(GradientType::bfloat16, "sm90_backward_d64_bfloat16_packed"),
      instance<D64<__nv_bfloat16, Way::packed_in_turn>>(GradientType::bfloat16,
                                                        "sm90_backward_d64_bfloat16_packed_deterministic"),
  };
  return {instances, 10};
}

}  // namespace cuda_llm_ops::cuda::backward
