#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_interleaved_narrow() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 4, true, false, true>>("float16 wgmma 128x64 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, true, false, true>>("bfloat16 wgmma 128x64 interleaved", 1.0),
      instance<Config<__half, 96, 128, 2, 2, true, false, true>>("float16 wgmma 128x96 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 96, 128, 2, 2, true, false, true>>("bfloat16 wgmma 128x96 interleaved", 1.0),
      instance<Config<__half, 128, 128, 2, 2, true, false, true>>("float16 wgmma 128x128 interleaved", 1.0),
      instance<Config<__nv_bfloat16, 128, 128, 2, 2, true, false, true>>("bfloat16 wgmma 128x128 interleaved", 1.0),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
