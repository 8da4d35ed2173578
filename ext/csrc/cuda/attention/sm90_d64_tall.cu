#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64_tall() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 80, 3, 4, q_registers | summed>>("float16 wgmma 192x64, 80 keys", {0.882, 0.89, 557}),
      instance<Config<__nv_bfloat16, 64, 80, 3, 4, q_registers | summed>>(
          "bfloat16 wgmma 192x64, 80 keys", {0.882, 0.89, 557}),
      instance<Config<__half, 64, 64, 3, 4, q_registers>>("float16 wgmma 192x64, 64 keys", {0.957, 0.92, 491}),
      instance<Config<__nv_bfloat16, 64, 64, 3, 4, q_registers>>("bfloat16 wgmma 192x64, 64 keys", {0.957, 0.92, 491}),
      instance<Config<__half, 64, 64, 3, 4, ping_pong | q_registers | summed>>(
          "float16 wgmma 192x64, 64 keys in turns", {0.939, 1.1, 477}),
      instance<Config<__nv_bfloat16, 64, 64, 3, 4, ping_pong | q_registers | summed>>(
          "bfloat16 wgmma 192x64, 64 keys in turns", {0.939, 1.1, 477}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
