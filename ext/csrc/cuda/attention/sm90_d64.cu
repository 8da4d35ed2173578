#include "sm90_flash.cuh"
#include "sm90_instances.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64() {
  static const Instance instances[] = {
      instance<Config<__half, 64, 128, 2, 4, ping_pong | q_registers | summed | joined>>(
          "float16 wgmma 128x64, 128 keys", {0.98, 0.925, 300, 1.0, 330}),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, ping_pong | q_registers | summed | joined>>(
          "bfloat16 wgmma 128x64, 128 keys", {0.98, 0.925, 300, 1.0, 330}),
      instance<Config<__half, 64, 128, 2, 4, split_keys>>("float16 wgmma 64x64, split keys", {1.1, 1.05, 470}),
      instance<Config<__nv_bfloat16, 64, 128, 2, 4, split_keys>>("bfloat16 wgmma 64x64, split keys", {1.1, 1.05, 470}),
  };
  return {instances, static_cast<int>(sizeof(instances) / sizeof(instances[0]))};
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
