#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 4, true, false>>("float16 wgmma 128x64, 128 keys"),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, true, false>>("bfloat16 wgmma 128x64, 128 keys"),
      instance<Config<__half, 64, 176, 2, 2, true, false>>("float16 wgmma 128x64, 176 keys", 0.95, 0.95),
      instance<Config<__nv_bfloat16, 64, 176, 2, 2, true, false>>("bfloat16 wgmma 128x64, 176 keys", 0.95, 0.95),
      instance<Config<__half, 64, 96, 3, 2, true, false>>("float16 wgmma 192x64", 0.85, 0.98),
      instance<Config<__nv_bfloat16, 64, 96, 3, 2, true, false>>("bfloat16 wgmma 192x64", 0.85, 0.98),
      instance<Config<__half, 64, 128, 2, 4, false, true>>("float16 wgmma 64x64, split keys", 1.1, 1.1),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, false, true>>("bfloat16 wgmma 64x64, split keys", 1.1, 1.1),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
