#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_256() {
  static const Instance instances[] = {
      instance<Config<__half, 256, 64, 2, 2, plain>>("float16 wgmma 128x256"),
      instance<Config<__nv_bfloat16, 256, 64, 2, 2, plain>>("bfloat16 wgmma 128x256"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
