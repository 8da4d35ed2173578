#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 2, ping_pong | q_registers | summed>>(
          "float16 wgmma 128x64, 128 keys", {1.0, 1.0, 470}),
      instance<Config<__nv_bfloat16, 64, 128, 2, 2, ping_pong | q_registers | summed>>(
          "bfloat16 wgmma 128x64, 128 keys", {1.0, 1.0, 470}),
      instance<Config<__half, 64, 144, 2, 2, ping_pong | q_registers | summed>>(
          "float16 wgmma 128x64, 144 keys", {0.954, 1.0, 543}),
      instance<Config<__nv_bfloat16, 64, 144, 2, 2, ping_pong | q_registers | summed>>(
          "bfloat16 wgmma 128x64, 144 keys", {0.954, 1.0, 543}),
      instance<Config<__half, 64, 128, 2, 4, split_keys>>("float16 wgmma 64x64, split keys", {1.1, 1.1, 470}),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, split_keys>>("bfloat16 wgmma 64x64, split keys", {1.1, 1.1, 470}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
