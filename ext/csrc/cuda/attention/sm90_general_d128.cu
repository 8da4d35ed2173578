#include "sm90_general.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

Pair pair_128() {
  static const Instance instances[] = {
      instance<Config<__half, 128, 128, 2, true>>("float16 wgmma general 128x128"),
      instance<Config<__nv_bfloat16, 128, 128, 2, true>>("bfloat16 wgmma general 128x128"),
  };
  return {instances};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
