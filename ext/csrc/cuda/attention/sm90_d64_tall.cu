#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64_tall() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 80, 3, 4, ping_pong | q_registers | summed | joined | even>>(
          "float16 wgmma 192x64, 80 keys", {0.857, 0.809, 420, 1.0, 1184}),
      instance<Config<__nv_bfloat16, 64, 80, 3, 4, ping_pong | q_registers | summed | joined | even>>(
          "bfloat16 wgmma 192x64, 80 keys", {0.857, 0.809, 420, 1.0, 1184}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
