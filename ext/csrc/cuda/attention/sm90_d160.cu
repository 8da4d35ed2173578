#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_160() {
  static const Instance instances[] = {
      instance<Config<__half, 160, 112, 2, 2, true, false>>("float16 wgmma 128x160"),
      instance<Config<__nv_bfloat16, 160, 112, 2, 2, true, false>>("bfloat16 wgmma 128x160"),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
