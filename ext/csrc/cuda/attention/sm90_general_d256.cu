#include "sm90_general.cuh"

namespace cuda_llm_ops::cuda::sm90::general {

Pair pair_256() {
  static const Instance instances[] = {
      instance<Config<__half, 256, 64, 2, false>>("float16 wgmma general 128x256"),
      instance<Config<__nv_bfloat16, 256, 64, 2, false>>("bfloat16 wgmma general 128x256"),
  };
  return {instances};
}

}  // namespace cuda_llm_ops::cuda::sm90::general
