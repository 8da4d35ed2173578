#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_realigned_widest() {
  static const Instance instances[] = {
      instance<Config<__half, 160, 64, 2, 2, ping_pong | realigned>>("float16 wgmma 128x160, realigned"),
      instance<Config<__nv_bfloat16, 160, 64, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x160, realigned"),
      instance<Config<__half, 192, 64, 2, 2, ping_pong | realigned>>("float16 wgmma 128x192, realigned"),
      instance<Config<__nv_bfloat16, 192, 64, 2, 2, ping_pong | realigned>>("bfloat16 wgmma 128x192, realigned"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
