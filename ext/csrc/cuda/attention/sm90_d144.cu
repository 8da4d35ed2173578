#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_144() {
  static const Instance instances[] = {
      instance<Config<__half, 144, 112, 2, 2, ping_pong>>("float16 wgmma 128x144", {1.0, 1.0, 440, 1.32}),
      instance<Config<__nv_bfloat16, 144, 112, 2, 2, ping_pong>>("bfloat16 wgmma 128x144", {1.0, 1.0, 440, 1.32}),
      instance<Config<__half, 144, 112, 2, 2, ping_pong | paired>>(
          "float16 wgmma 256x144, paired", {0.986, 1.0, 440, 1.033}),
      instance<Config<__nv_bfloat16, 144, 112, 2, 2, ping_pong | paired>>(
          "bfloat16 wgmma 256x144, paired", {0.986, 1.0, 440, 1.033}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
