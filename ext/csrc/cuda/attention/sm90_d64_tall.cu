#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64_tall() {
  constexpr unsigned ways = ping_pong | q_registers | summed | joined;
  static const Instance instances[] = {
      instance<Config<__half, 64, 80, 3, 4, ways>>("float16 wgmma 192x64, 80 keys", {0.857, 0.809, 420, 1.0, 1184}),
      instance<Config<__nv_bfloat16, 64, 80, 3, 4, ways>>("bfloat16 wgmma 192x64, 80 keys", {0.857, 0.809, 420, 1.0, 1184}),
      instance<Config<__half, 64, 80, 3, 4, ways | even>>("float16 wgmma 192x64, 80 keys, shared tiles", {0.857, 0, 420}),
      instance<Config<__nv_bfloat16, 64, 80, 3, 4, ways | even>>("bfloat16 wgmma 192x64, 80 keys, shared tiles",
                                                                 {0.857, 0, 420}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
