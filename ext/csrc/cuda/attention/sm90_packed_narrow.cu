#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_packed_narrow() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 2, ping_pong | packed>>("float16 wgmma 128x64, packed"),
      instance<Config<__nv_bfloat16, 64, 128, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x64, packed"),
      instance<Config<__half, 96, 128, 2, 2, ping_pong | packed>>("float16 wgmma 128x96, packed"),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x96, packed"),
      instance<Config<__half, 112, 128, 2, 2, ping_pong | packed>>("float16 wgmma 128x112, packed"),
      instance<Config<__nv_bfloat16, 112, 128, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x112, packed"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
