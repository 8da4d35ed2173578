#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_112() {
  static const Instance instances[] = {
      instance<Config<__half, 112, 128, 2, 2, ping_pong>>("float16 wgmma 128x112", {1.0, 1.0, 440, 1.3}),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong>>("bfloat16 wgmma 128x112", {1.0, 1.0, 440, 1.3}),
      instance<Config<__half, 112, 128, 2, 2, ping_pong | paired>>(
          "float16 wgmma 256x112, paired", {1.035, 1.03, 440, 1.0}),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong | paired>>(
          "bfloat16 wgmma 256x112, paired", {1.035, 1.03, 440, 1.0}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
