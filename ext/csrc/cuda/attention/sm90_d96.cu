#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_96() {
  static const Instance instances[] = {
      instance<Config<__half, 96, 128, 2, 2, ping_pong>>("float16 wgmma 128x96", {1.0, 1.0, 440, 1.45}),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, ping_pong>>("bfloat16 wgmma 128x96", {1.0, 1.0, 440, 1.45}),
      instance<Config<__half, 96, 128, 2, 2, ping_pong | paired>>(
          "float16 wgmma 256x96, paired", {1.005, 1.025, 440, 1.035}),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, ping_pong | paired>>(
          "bfloat16 wgmma 256x96, paired", {1.005, 1.025, 440, 1.035}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
