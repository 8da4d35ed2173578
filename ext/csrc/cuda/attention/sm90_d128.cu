#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_128() {
  static const Instance instances[] = {
      instance<Config<__half, 128, 128, 2, 2, ping_pong>>("float16 wgmma 128x128", {1.0, 1.0, 440, 1.25}),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, ping_pong>>("bfloat16 wgmma 128x128", {1.0, 1.0, 440, 1.25}),
      instance<Config<__half, 128, 128, 2, 2, ping_pong | paired>>(
          "float16 wgmma 256x128, paired", {1.0, 1.015, 440, 1.14}),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, ping_pong | paired>>(
          "bfloat16 wgmma 256x128, paired", {1.0, 1.015, 440, 1.14}),
      instance<Config<__half, 128, 64, 2, 4, split_keys>>("float16 wgmma 64x128, split keys", {1.2, 1.2}),
      instance<Config<__nv_bfloat16, 128, 64, 2, 4, split_keys>>("bfloat16 wgmma 64x128, split keys", {1.2, 1.2}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
