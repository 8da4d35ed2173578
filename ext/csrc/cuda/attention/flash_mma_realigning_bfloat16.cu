// Instances of flash_mma.cuh: bfloat16, rows that start anywhere. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances realigning_bfloat16() {
  return realigning<__nv_bfloat16>({
      "flash_mma_bfloat16_realign_64_256r",
      "flash_mma_bfloat16_realign_64_64r",
      "flash_mma_bfloat16_realign_136_256r",
      "flash_mma_bfloat16_realign_136_64r",
      "flash_mma_bfloat16_realign_192_128r",
      "flash_mma_bfloat16_realign_256_128r",
      "flash_mma_bfloat16_realign_256_64r",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
