#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_packed_wide() {
  static const Instance instances[] = {
      instance<Config<__half, 128, 128, 2, 2, ping_pong | packed>>("float16 wgmma 128x128, packed"),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x128, packed"),
      instance<Config<__half, 136, 128, 2, 2, ping_pong | packed>>("float16 wgmma 128x136, packed"),
      instance<Config<__nv_bfloat16, 136, 128, 2, 2, ping_pong | packed>>("bfloat16 wgmma 128x136, packed"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
