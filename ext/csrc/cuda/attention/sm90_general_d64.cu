#include "sm90_general.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

Pair pair_64() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 4, true>>("float16 wgmma general 128x64"),
      instance<Config<__nv_bfloat16, 64, 128, 4, true>>("bfloat16 wgmma general 128x64"),
  };
  return {instances};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
