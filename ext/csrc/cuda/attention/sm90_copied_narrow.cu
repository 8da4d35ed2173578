#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_copied_narrow() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 2, ping_pong | copied>>("float16 wgmma 128x64, copied"),
      instance<Config<__nv_bfloat16, 64, 128, 2, 2, ping_pong | copied>>("bfloat16 wgmma 128x64, copied"),
      instance<Config<__half, 112, 128, 2, 2, ping_pong | copied>>("float16 wgmma 128x112, copied"),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong | copied>>("bfloat16 wgmma 128x112, copied"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
