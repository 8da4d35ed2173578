// Instances of the backward's Hopper kernels for test_backward_races.py: of pairs of blocks with two stages of dO and with
// one, in free order and in turn; and of single blocks.
#include "backward_wgmma_host.cpp"

namespace cuda_llm_ops::cuda::backward {
using Half = __half;
using Bfloat16 = __nv_bfloat16;

template <typename C, GradientType Type>
Family only() {
  static const Instance one[] = {instance<C>(Type, "one")};
  return {one, 1};
}

Family family_64() { return {nullptr, 0}; }
Family family_128() { return only<Config<Half, 128, 64, Way::free_order>, GradientType::float16>(); }
Family family_192_of_128() { return {nullptr, 0}; }
Family family_192() { return only<WideConfig<Bfloat16, 192, 192, Way::free_order>, GradientType::bfloat16>(); }
Family family_256() { return only<WideConfig<Half, 256, 256, Way::in_turn>, GradientType::float16>(); }
}  // namespace cuda_llm_ops::cuda::backward
