#include "sm90_general.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

Pair pair_96() {
  static const Instance instances[] = {
      instance<Config<__half, 96, 128, 2, true>>("float16 wgmma general 128x96"),
      instance<Config<__nv_bfloat16, 96, 128, 2, true>>("bfloat16 wgmma general 128x96"),
  };
  return {instances};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
