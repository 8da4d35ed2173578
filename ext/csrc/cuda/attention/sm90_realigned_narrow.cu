#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_realigned_narrow() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 2, ping_pong | realigned>>("float16 wgmma 128x64, realigned"),
      instance<Config<__half, 64, 128, 2, 2, ping_pong | realigned | paired>>("float16 wgmma 256x64, realigned, paired"),
      instance<Config<__nv_bfloat16, 64, 128, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x64, realigned"),
      instance<Config<__nv_bfloat16, 64, 128, 2, 2, ping_pong | realigned | paired>>("bfloat16 wgmma 256x64, realigned, paired"),
      instance<Config<__half, 96, 128, 2, 2, ping_pong | realigned>>("float16 wgmma 128x96, realigned"),
      instance<Config<__half, 96, 128, 2, 2, ping_pong | realigned | paired>>("float16 wgmma 256x96, realigned, paired"),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x96, realigned"),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, ping_pong | realigned | paired>>("bfloat16 wgmma 256x96, realigned, paired"),
      instance<Config<__half, 112, 128, 2, 2, ping_pong | realigned>>("float16 wgmma 128x112, realigned"),
      instance<Config<__half, 112, 128, 2, 2, ping_pong | realigned | paired>>("float16 wgmma 256x112, realigned, paired"),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x112, realigned"),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong | realigned | paired>>("bfloat16 wgmma 256x112, realigned, paired"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
