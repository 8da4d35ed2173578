#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_interleaved_wide() {
  static const Instance instances[] = {
      instance<Config<__half, 136, 64, 2, 3, true, false, true>>("float16 wgmma 128x136 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 136, 64, 2, 3, true, false, true>>("bfloat16 wgmma 128x136 interleaved", 1.0),
      instance<Config<__half, 160, 64, 2, 3, true, false, true>>("float16 wgmma 128x160 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 160, 64, 2, 3, true, false, true>>("bfloat16 wgmma 128x160 interleaved", 1.0),
      instance<Config<__half, 192, 64, 2, 2, false, false, true>>("float16 wgmma 128x192 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 192, 64, 2, 2, false, false, true>>("bfloat16 wgmma 128x192 interleaved", 1.0),
      instance<Config<__half, 256, 64, 2, 2, false, false, true>>("float16 wgmma 128x256 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 256, 64, 2, 2, false, false, true>>("bfloat16 wgmma 128x256 interleaved", 1.0),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
