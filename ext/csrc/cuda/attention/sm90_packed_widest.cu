#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_packed_widest() {
  static const Instance instances[] = {
      instance<Config<__half, 160, 64, 2, 2, ping_pong | packed>>("float16 wgmma 128x160, packed"),
      instance<Config<__nv_bfloat16, 160, 64, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x160, packed"),
      instance<Config<__half, 192, 64, 2, 2, ping_pong | packed>>("float16 wgmma 128x192, packed"),
      instance<Config<__nv_bfloat16, 192, 64, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x192, packed"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
