#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_copied_wide() {
  static const Instance instances[] = {
      instance<Config<__half, 144, 96, 2, 2, ping_pong | copied>>("float16 wgmma 128x144, copied"),
      instance<Config<__nv_bfloat16, 144, 96, 2, 2, ping_pong | copied>>("bfloat16 wgmma 128x144, copied"),
      instance<Config<__half, 192, 64, 2, 2, copied>>("float16 wgmma 128x192, copied"),
      instance<Config<__nv_bfloat16, 192, 64, 2, 2, copied>>("bfloat16 wgmma 128x192, copied"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
