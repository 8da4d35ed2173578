#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_realigned_wide() {
  static const Instance instances[] = {
      instance<Config<__half, 128, 128, 2, 2, ping_pong | realigned>>("float16 wgmma 128x128, realigned"),
      instance<Config<__half, 128, 128, 2, 2, ping_pong | realigned | paired>>("float16 wgmma 256x128, realigned, paired"),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x128, realigned"),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, ping_pong | realigned | paired>>("bfloat16 wgmma 256x128, realigned, paired"),
      instance<Config<__half, 136, 128, 2, 2, ping_pong | realigned>>("float16 wgmma 128x136, realigned"),
      instance<Config<__half, 136, 128, 2, 2, ping_pong | realigned | paired>>("float16 wgmma 256x136, realigned, paired"),
      instance<Config<__nv_bfloat16, 136, 128, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x136, realigned"),
      instance<Config<__nv_bfloat16, 136, 128, 2, 2, ping_pong | realigned | paired>>("bfloat16 wgmma 256x136, realigned, paired"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
