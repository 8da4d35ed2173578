// Instances of the backward's Hopper kernels for test_backward_races.py: of pairs of blocks with two stages of dO and with
// one, in free order and in turn; of single blocks; and of these for packed sequences.
#include "backward_wgmma_host.cpp"

namespace cuda_llm_ops::cuda::backward {
using Half = __half;
using Bfloat16 = __nv_bfloat16;

template <GradientType Type, typename... C>
Family only() {
  static const Instance all[] = {instance<C>(Type, "one")...};
  return {all, sizeof...(C)};
}

Family family_64() { return only<GradientType::bfloat16, Config<Bfloat16, 64, 128, Way::packed>>(); }
Family family_128() {
  return only<GradientType::float16, Config<Half, 128, 64, Way::free_order>,
              Config<Half, 128, 64, Way::packed_in_turn>>();
}
Family family_192_of_128() { return {nullptr, 0}; }
Family family_192() { return only<GradientType::bfloat16, WideConfig<Bfloat16, 192, 192, Way::free_order>>(); }
Family family_256() { return only<GradientType::float16, WideConfig<Half, 256, 256, Way::in_turn>>(); }
}  // namespace cuda_llm_ops::cuda::backward
