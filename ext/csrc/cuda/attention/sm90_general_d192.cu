#include "sm90_general.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

Pair pair_192() {
  static const Instance instances[] = {
      instance<Config<__half, 192, 96, 2, true>>("float16 wgmma general 128x192"),
      instance<Config<__nv_bfloat16, 192, 96, 2, true>>("bfloat16 wgmma general 128x192"),
  };
  return {instances};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
